"""Secrets are taken out of ledger records before they are written: the readers of the ledger need not see them.

Found are: what has the form of a key or token, bearer tokens, private keys, passwords in URLs, what is assigned to a name
such as `password` (as a key of JSON, in a text, in JSON inside a text, as an option of a command), the values of named
secrets, and what the patterns of the installation match. A value under such a name in the arguments of a call is hidden in
the rest of its record too: an error may repeat it. A secret becomes `[redacted:<kind>]`; everything else stays equal.
In doubt something is taken for a secret: a record that says too little is the smaller harm.

Most records hold none, and cost a search for the literals without which there can be none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

import orjson
from msgspec import Struct
from typing_extensions import override

from owlclaw_ray.domain.access_key import KEY_PATTERN, PREFIX
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.ids import TenantId

MIN_SECRET_CHARACTERS = 6
"""Characters that the value of a named secret has at least: a shorter one is in too much that is none."""
_KINDS = {
    "password": "password",
    "passwords": "password",
    "passwd": "password",
    "passphrase": "password",
    "pwd": "password",
    "密码": "password",
    "口令": "password",
    "secret": "secret",
    "secrets": "secret",
    "密钥": "secret",
    "秘钥": "secret",
    "token": "token",
    "令牌": "token",
    "apikey": "api_key",
    "accesskey": "access_key",
    "accesskeyid": "access_key",
    "secretkey": "secret_key",
    "privatekey": "private_key",
    "signingkey": "signing_key",
    "encryptionkey": "encryption_key",
    "accountkey": "account_key",
    "masterkey": "master_key",
    "sharedkey": "shared_key",
    "webhookurl": "webhook_url",
    "connectionstring": "connection_string",
    "authorization": "authorization",
    "cookie": "cookie",
    "cookies": "cookie",
    "credential": "credential",
    "credentials": "credential",
}
"""What a name that ends so holds, once it is in lower case and without separators."""
_NO_SECRETS = frozenset({"PWD", "OLDPWD"})
"""Variables that are named as secrets are, and hold paths."""
_SECRET_VARIABLE = re.compile(
    r"(?:.*_)?(?:KEY|PAT|AUTH|DSN|SALT|CREDS?|WEBHOOK|CONN(?:ECTION)?_STR(?:ING)?)", re.IGNORECASE
)
"""Variables that are named so hold secrets; in a document, such a name may mean anything."""
_KNOWN_KEYS = ("PRIMARY", "FOREIGN", "PUBLIC", "PARTITION", "SORT", "CACHE")
"""Keys that are none to anything."""
_CAPITALS = re.compile(rf"(?!(?:\w+_)?(?:{'|'.join(_KNOWN_KEYS)})_KEY)[A-Z][A-Z0-9_]*_(?P<word>KEY|PAT)")
_AUTH = re.compile(r"(?:.*[._-])?_?auth", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^\s/?#:@]*:(?P<secret>[^\s/?#]+)@")
_NAME = (
    r"passwords?|passwd|passphrase|(?<![a-z])pass|pwd|secrets?|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key|private[_-]?key"
    r"|(?:signing|encryption|account|master|shared)[_-]?key|webhook[_-]?url|connection[_-]?string"
    r"|authorization|(?<![a-z])auth|credentials?|密码|口令|令牌|密钥|秘钥"
    rf"|(?-i:(?<=[A-Z0-9]_){''.join(f'(?<!{each}_)' for each in _KNOWN_KEYS)}KEY|(?<=[A-Z0-9]_)PAT)"
)
_NAMED = re.compile(
    r"pass|pwd|pat(?![a-z])|secret|token|api[_ -]?key|access|private|signing|encryption|account|master|shared|webhook|connection|auth"
    r"|credential|key|密码|口令|令牌|密钥|秘钥"
)
"""Every such name begins with one of these, in lower case."""
_QUALIFIED = r"(?:[_-]?(?:value|hash|v[0-9]{1,2}))?"
"""What may stand at the end of a name after that which says that it is a secret."""
_QUALIFIER = re.compile(r"(?<=[A-Za-z0-9])[_.-]?(?:(?<=[_.-])(?:value|hash|v[0-9]{1,2})|Value|Hash|VALUE|HASH)$")
_LAST_WORD = re.compile(r"(?:^|[^A-Za-z]|(?<=[a-z])(?=P))pass$", re.IGNORECASE)
_NAMES, _VALUES = ("name", "key", "field", "header"), ("value", "values", "content", "default")
"""Keys of an object that holds a name and its value."""
_TYPES = frozenset({"string", "object", "integer", "boolean", "number"})
"""Values under a name in a schema."""
_NO_VALUES = (
    "wrong|incorrect|invalid|missing|required|empty|needed|expired|not|too|set|unset|correct|known|unknown|stored|hidden|never|the"
    "|an?|in|on|no|being|already|only|weak|short|long|blank"
)
_QUOTED = r""""(?:[^"\\]|\\.)+"?|'(?:[^'\\]|\\.)+'?|(?P<quote>\\+["'])(?:(?!(?<!\\)(?P=quote))[\s\S])+(?:(?P=quote))?"""
_WORD = r"""[^\s"'<>,;&(){}\[\]\\]"""
_BARE = rf"(?!(?:null|none|true|false)\b)(?:(?:bearer|basic|token)\s+{_WORD}+|{_WORD}{{4,}})"
_MARKER = "[redacted:"
_MAX_REPEATED_SECRETS = 300
"""Secrets of arguments, in all spellings, that are looked for in the rest of a record; with more, the rest is withheld."""
_TOLD = frozenset({"arguments", "tool", "call_id", "model", "status", "what", "type"})
"""What is kept even then: the arguments are redacted by themselves, the others are not free text."""
_SEPARATORS = re.compile(r"[^a-z0-9\u0080-\U0010ffff]+")
_OPENING = frozenset('{["')
"""How a text begins that may be JSON with a text in it."""
_BRACKET = re.compile(r"[\[\]{}]")
_MAX_DEPTH = 100
_QUOTE = re.compile(r"""\\*["']""")
_HINTS = (
    r"p(?:ass|wd|plx-|csk_|at(?![a-z])|m_|ypi-|odman)|c(?:url|io[a-z0-9]{30}|ookie|redential|ker\b|onn(?:ection)?[_-]?str)|m(?:ysql|ariadb)|s(?:ig=|ignature=|ec(?:ret|_)"
    r'|k[-_]|g\.|hp[acs])|t(?:oken(?!s")|n_[a-z0-9]{20}|cp\()|key|a(?:uth(?!or(?!i))|kia|sia|iza|29\.|tatt3)|bearer|://|r(?:k[-_]|8_|ubygems_)|x(?:ox|app-|ai-)'
    r"|g(?:h[pousr]_|ithub_pat_|l(?:pat-|dt-|rt-|sa_))|h(?:f_|v[sbr]\.)|l(?:in_(?:api|oauth)_|sv2_)|do[por]_v1_|eyj|owl_|\\u|密|口令|令牌|秘钥"
)
"""Without a match of this in its JSON, in lower case, a record has no secret but named ones. (JSON inside a text may spell
anything with `\\u`; counts of `tokens` are in too many records.) Each alternative begins with a letter of its own, which is what
the search can skip to: it is four times as fast so, and every record is searched.
"""
_HINT = re.compile(_HINTS.encode())


class _SecretForm(Struct, frozen=True):
    """How secrets of a kind look in a text. Where `hint` finds nothing in the text in lower case, there are none."""

    kind: str
    hint: re.Pattern[str]
    pattern: re.Pattern[str]

    def hide(self, text: str, lowered: str) -> str:
        """Return the text with markers in place of the secrets."""
        return self.pattern.sub(self._hidden, text) if self.hint.search(lowered) else text

    def _hidden(self, found: re.Match[str]) -> str:
        """Return the match with a marker in place of its group `secret`, or of all of it."""
        if "secret" not in self.pattern.groupindex:
            return marker(self.kind)
        start, end = (place - found.start() for place in found.span("secret"))
        whole = found.group()
        return whole[:start] + marker(self.kind) + whole[end:]


class _Assignment(_SecretForm, frozen=True):
    """A value after its name, which tells the kind. The hint finds every place where a name may begin."""

    begins_with_name: bool = False

    @override
    def hide(self, text: str, lowered: str) -> str:
        present = text.lower()  # what was hidden before has moved the rest
        if not self.begins_with_name or len(text) != len(present):
            return super().hide(text, present)
        parts, done = [], 0
        for begin in self.hint.finditer(present):
            found = self.pattern.match(text, begin.start()) if begin.start() >= done else None
            if found:
                parts += [text[done : found.start()], self._hidden(found)]
                done = found.end()
        return "".join((*parts, text[done:])) if parts else text

    def _hidden(self, found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        quote = _QUOTE.match(value)
        opened = quote.group() if quote else ""
        closed = opened if opened and len(value) > len(opened) and value.endswith(opened) else ""
        return found.group().removesuffix(value) + opened + marker(_kind_of(name) or name) + closed


def _form(kind: str, hint: str, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> _SecretForm:
    return _SecretForm(kind, re.compile(hint), re.compile(pattern, flags))


def _assignment(before: str, between: str) -> _SecretForm:
    return _named(rf"{before}(?P<name>{_NAME}){_QUALIFIED}{between}", rf"{_QUOTED}|{_BARE}")


def _named(name: str, value: str, after: str = "") -> _SecretForm:
    pattern = re.compile(rf"{name}(?P<value>{value}){after}", re.IGNORECASE)
    return _Assignment("", _NAMED, pattern, begins_with_name=name.startswith("(?P<name>"))


def _of_programs(space: str, word: str) -> tuple[_SecretForm, ...]:
    """Return how programs are given passwords by options that do not say so."""
    some = rf"(?:[^\n|;&]{{0,400}}?{space})?"
    return (
        _form(
            "password",
            "curl",
            rf"""\bcurl{space}{some}(?:-[uU]|--user|--proxy-user)(?:{space}|=)?["']?[^\s:"']+:(?P<secret>{word})""",
        ),
        _form("password", "mysql|mariadb", rf"\b(?:mysql|mariadb)[a-z-]{{0,24}}{space}{some}-p(?P<secret>{word})"),
        _form(
            "password",
            "docker|podman",
            rf"\b(?:docker|podman){space}login{space}{some}-p(?:{space}|=)?(?P<secret>{word})",
        ),
        _form("password", "sshpass", rf"\bsshpass{space}{some}-p(?:{space})?(?P<secret>{word})"),
    )


_BETWEEN = "\x1f"
_LIST_FORMS = _of_programs(_BETWEEN, rf"[^{_BETWEEN}]+")
_FORMS = (
    *_of_programs(r"\s+", r"""'[^'\n]+'|"[^"\n]+"|[^\s"'\\]+"""),
    _named(
        rf"(?P<name>{_NAME}){_QUALIFIED}\s+(?:(?:is|was|are)\s+)?", r"""'(?:[^'\\]|\\.){6,}'|"(?:[^"\\]|\\.){6,}\""""
    ),
    _named(r"(?P<name>passwords?|passwd|passphrase|pwd|api[_ -]?key)\s+is\s+", rf"(?!(?:{_NO_VALUES})\b){_BARE}"),
    _named(rf"<[\w:.-]{{0,64}}?(?P<name>{_NAME}){_QUALIFIED}(?:\s[^<>]*)?>", r"[^<>\s][^<>]*", r"(?=</)"),
    _named(
        rf"""(?P<name>{_NAME}){_QUALIFIED}["']?\s*:\s*[|>][+-]?[0-9]?[ \t]*\n(?P<indent>[ \t]+)""",
        r"\S[^\n]*(?:\n(?P=indent)[^\n]*)*",
    ),
    _form(
        "signature", "sig=|signature=", r"""[?&;](?:sig|[a-z-]*signature)=(?P<secret>[^&\s"'<>\\]+)""", re.IGNORECASE
    ),
    _form(
        "private_key",
        "private key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)",
    ),
    _form("password", "://", r"""://[^\s/?#:@"'<>\\]{0,256}:(?P<secret>[^\s/?#"'<>\\]+)@"""),
    _assignment("", r"""\\*["']?\s*(?:=>|[:=\uff1a])\s*"""),
    _assignment(r"--[\w-]{0,64}?", r"\s+"),
    _form("api_key", PREFIX, rf"(?<![A-Za-z0-9]){KEY_PATTERN}"),
    _form("api_key", "sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}"),
    _form("api_key", "[sr]k_", r"(?<![A-Za-z0-9])[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _form("api_key", "akia|asia", r"(?:AKIA|ASIA)[A-Z0-9]{16,}"),
    _form("api_key", "aiza", r"AIza[A-Za-z0-9_-]{30,}"),
    _form("token", "gh[pousr]_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    _form("token", "github_pat_|gl(?:pat|dt|rt)-", r"(?:github_pat_|gl(?:pat|dt|rt)-)[A-Za-z0-9_-]{16,}"),
    _form("token", "xox|xapp-", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _form("token", "hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
    _form(
        "token",
        "eyj",
        r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_-]*?"
        r"(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
    ),
    _form("token", "gsk_", r"(?<![A-Za-z0-9])gsk_[A-Za-z0-9]{20,}"),
    _form("token", r"hv[sbr]\.", r"(?<![A-Za-z0-9])hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    _form("token", "lin_(?:api|oauth)_", r"(?<![A-Za-z0-9])lin_(?:api|oauth)_[A-Za-z0-9]{20,}"),
    _form("token", "do[por]_v1_", r"(?<![A-Za-z0-9])do[por]_v1_[a-f0-9]{20,}"),
    _form("token", "npm_|dckr_pat_", r"(?<![A-Za-z0-9])(?:npm_|dckr_pat_)[A-Za-z0-9_-]{20,}"),
    _form("token", "pypi-", r"(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{32,}"),
    _form("token", "rubygems_", r"(?<![A-Za-z0-9])rubygems_[a-f0-9]{32,}"),
    _form("token", "cio", r"(?<![A-Za-z0-9])cio[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    _form("token", "r8_|ntn_", r"(?<![A-Za-z0-9])(?:r8_|ntn_)[A-Za-z0-9]{30,}"),
    _form("token", "glsa_", r"(?<![A-Za-z0-9])glsa_[A-Za-z0-9_]{24,}"),
    _form("token", "atatt3", r"(?<![A-Za-z0-9])ATATT3[A-Za-z0-9_=-]{24,}"),
    _form("api_key", "xai-|pplx-", r"(?<![A-Za-z0-9])(?:xai|pplx)-[A-Za-z0-9]{24,}"),
    _form("api_key", "lsv2_|pcsk_", r"(?<![A-Za-z0-9])(?:lsv2_(?:pt|sk)|pcsk)_[A-Za-z0-9_]{24,}"),
    _form("secret", "whsec_", r"whsec_[A-Za-z0-9+/=_-]{16,}"),
    _form("token", r"ya29\.", r"ya29\.[A-Za-z0-9_-]{16,}"),
    _form("api_key", r"sg\.", r"(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _form("token", "shp[acs]", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _form("password", r"@tcp\(", r"(?<![^\s\"'=])[\w.-]{1,64}:(?P<secret>[^\s@/:\"']{1,256})@tcp\("),
    _form("token", "://", r"://(?P<secret>[0-9a-f]{32})@", re.IGNORECASE),
    _form(
        "webhook_url",
        r"hooks|webhook|telegram|/hook/|hook\.|ifttt",
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/|api\.telegram\.org/bot"
        r"|webhook\.office\.com/webhookb2/|outlook\.office(?:365)?\.com/webhook/|hooks\.zapier\.com/hooks/(?:catch|standard)/"
        r"|hook\.(?:[a-z0-9]{1,8}\.)?(?:make|integromat)\.com/|maker\.ifttt\.com/trigger/[^\s/]{1,128}/(?:json/)?with/key/|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/"
        r"|qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=)(?P<secret>[^\s\"'<>\\?&#]+)",
        re.IGNORECASE,
    ),
    _form(
        "webhook_url",
        "/hooks/",
        r"/hooks/(?P<secret>[a-z0-9]{26}(?![A-Za-z0-9])|[A-Za-z0-9]{17,24}/[A-Za-z0-9]{32,})",
    ),
    _form("bearer_token", "bearer", r"(?<![a-z])bearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE),
    _form("cookie", "cookie", r"""cookie\s*:\s*(?P<secret>[^\s"'\\\[][^\r\n"'\\]*)""", re.IGNORECASE),
)


def marker(kind: str) -> str:
    """Return the text in the place of a secret."""
    return f"{_MARKER}{kind}]"


class Redactor:
    """Takes secrets out of JSON. `secrets` are known values by their names, `patterns` regular expressions for more.

    Patterns are searched for in every text and key on its own.
    """

    def __init__(self, secrets: Mapping[str, str] | None = None, patterns: Sequence[str] = ()) -> None:
        long_enough = {name: value for name, value in (secrets or {}).items() if len(value) >= MIN_SECRET_CHARACTERS}
        self._secrets = sorted(long_enough.items(), key=lambda item: len(item[1]), reverse=True)
        self._patterns = [re.compile(pattern) for pattern in patterns]
        # of each the longest part that no JSON writer spells in another way, as the search has it
        parts = (max(re.split(r"""[^ !#-.0-\[\]-~]+""", value), key=len) for value in long_enough.values())
        self._parts = sorted({orjson.dumps(part)[1:-1].lower() for part in parts})

    def suspects(self, text: bytes) -> bool:
        """Return whether a record with this JSON text might hold a secret."""
        lowered = text.lower()
        return bool(self._patterns or _HINT.search(lowered)) or any(part in lowered for part in self._parts)

    def redact(self, data: JsonObject) -> JsonObject:
        """Return a copy of the data without secrets."""
        repeated = _argument_secrets(data)
        redacted = self._object(data)
        if len(repeated) > _MAX_REPEATED_SECRETS:
            return {key: _withheld_value(key, each) for key, each in redacted.items()}
        return _without(redacted, repeated) if repeated else redacted

    def _object(self, data: JsonObject) -> JsonObject:
        redacted: JsonObject = {}
        paired = _paired_kind(data)
        for key, value in data.items():
            kind = _kind_of(key) or (paired if key.lower() in _VALUES else None)
            shown = self._text(key)
            while shown in redacted:
                shown += "#"
            redacted[shown] = self._value(value) if kind is None else self._all_hidden(value, kind)
        return redacted

    def _value(self, value: JsonValue) -> JsonValue:
        match value:
            case str():
                return self._text(value)
            case dict():
                return self._object(value)
            case list() | tuple():
                redacted, kind = list[JsonValue](), None
                for each in _commands_hidden(value):
                    redacted.append(self._value(each) if kind is None else self._all_hidden(each, kind))
                    is_option = isinstance(each, str) and each.startswith("-") and "=" not in each
                    kind = _kind_of(each) if is_option else None
                return redacted
            case _:
                return value

    def _all_hidden(self, value: JsonValue, kind: str) -> JsonValue:
        match value:
            case None | bool() | "":
                return value
            case dict():
                return {self._text(key): self._all_hidden(each, kind) for key, each in value.items()}
            case list() | tuple():
                return [self._all_hidden(each, kind) for each in value]
            case _:
                return marker(kind)

    def _text(self, text: str) -> str:
        if len(text) < MIN_SECRET_CHARACTERS and not self._patterns:
            return text
        try:
            encoded = orjson.dumps(text)
        except TypeError:  # half characters, as JSON can spell them
            encoded = json.dumps(text).encode()
        if not self.suspects(encoded):
            return text
        inside = _parsed(text) if text.lstrip()[:1] in _OPENING else None
        if inside is not None:
            redacted = self._value(inside)
            return text if redacted == inside else _written(redacted)
        for name, value in self._secrets:
            text = text.replace(value, marker(name))
        lowered = text.lower()
        for form in _FORMS:
            text = form.hide(text, lowered)
        for pattern in self._patterns:
            text = pattern.sub(marker("custom"), text)
        return text


class TenantRedactors:
    """A redactor for each tenant: its own secrets are taken out of its records, and the others' are not.

    Whoever sees that a value is taken out learns that it is a secret: that must be no other tenant's.
    """

    def __init__(self, make: Callable[[Mapping[str, str]], Redactor]) -> None:
        """`make` returns a redactor that knows these secrets beside those of the installation."""
        self._make = make
        self._plain = make({})
        self._values: dict[TenantId, dict[str, str]] = {}
        self._own: dict[TenantId, Redactor] = {}

    def of(self, tenant: TenantId) -> Redactor:
        """Return the redactor of the tenant's records."""
        if tenant not in self._values:
            return self._plain
        if tenant not in self._own:
            self._own[tenant] = self._make(self._values[tenant])
        return self._own[tenant]

    @property
    def values(self) -> dict[TenantId, dict[str, str]]:
        """The values that are taken out, by tenant and name."""
        return {tenant: dict(known) for tenant, known in self._values.items()}

    def add(self, tenant: TenantId, name: str, value: str) -> None:
        """Take the value out from now on. Former values of the name are taken out, too, as long as this process lives."""
        known = self._values.setdefault(tenant, {})
        if value not in known.values():
            known[name if name not in known else f"{name} #{len(known)}"] = value
            self._own.pop(tenant, None)


def named_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those variables whose names say that they hold secrets, and the passwords in addresses that others hold."""
    found = dict[str, str]()
    for name, value in environ.items():
        password = _URL_PASSWORD.search(value)
        if name not in _NO_SECRETS and (_kind_of(name) is not None or _SECRET_VARIABLE.fullmatch(name)):
            found[name] = value
        elif password:
            found[name] = unquote(password["secret"])
    return found


def _argument_secrets(data: JsonValue) -> dict[str, str]:
    """Return the values under names of secrets in the arguments of a record, the longest first, and their markers."""
    found = {text: marker(kind) for arguments in _arguments(data) for text, kind in _named_values(arguments, None)}
    spelled = {
        spelling: shown
        for text, shown in found.items()
        if len(text) >= MIN_SECRET_CHARACTERS and text not in _TYPES and _MARKER not in text
        for spelling in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    }
    return dict(sorted(spelled.items(), key=lambda item: len(item[0]), reverse=True))


def _arguments(data: JsonValue) -> Iterator[JsonValue]:
    match data:
        case dict():
            for key, value in data.items():
                if key == "arguments":
                    yield _parsed(value) if isinstance(value, str) else value
                else:
                    yield from _arguments(value)
        case list() | tuple():
            for each in data:
                yield from _arguments(each)
        case _:
            pass


def _named_values(value: JsonValue, kind: str | None) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers under names of secrets, and what kind they are; `kind` is that of the names above."""
    match value:
        case dict():
            paired = _paired_kind(value)
            for key, each in value.items():
                yield from _named_values(each, kind or _kind_of(key) or (paired if key.lower() in _VALUES else None))
        case list() | tuple():
            for each in value:
                yield from _named_values(each, kind)
        case None | bool():
            return
        case _ if kind is not None:
            yield str(value), kind
        case _:
            return


def _withheld_value(key: str, value: JsonValue) -> JsonValue:
    """Return what a record keeps under a key when its texts may hold too many secrets to look for."""
    match value:
        case _ if key in _TOLD:
            return value
        case str():
            return marker("secret")
        case dict():
            return {name: _withheld_value(name, each) for name, each in value.items()}
        case list():
            return [_withheld_value("", each) for each in value]
        case _:
            return value


def _without(value: JsonValue, secrets: Mapping[str, str]) -> JsonValue:
    match value:
        case str():
            for secret, shown in secrets.items():
                value = value.replace(secret, shown)
            return value
        case dict():
            return {key: _without(each, secrets) for key, each in value.items()}
        case list():
            return [_without(each, secrets) for each in value]
        case _:
            return value


def _paired_kind(data: JsonObject) -> str | None:
    """Return what kind of secret an object such as `{"name": "password", "value": …}` holds, if one."""
    names = (data.get(key) for key in _NAMES)
    return next((kind for name in names if isinstance(name, str) and (kind := _kind_of(name))), None)


def _commands_hidden(items: Sequence[JsonValue]) -> Sequence[JsonValue]:
    """Return the words of a command without passwords that options give to a program."""
    if len(items) < 2 or not all(isinstance(each, str) and _BETWEEN not in each for each in items):
        return items
    joined = _BETWEEN.join(str(each) for each in items)
    lowered, hidden = joined.lower(), joined
    for form in _LIST_FORMS:
        hidden = form.hide(hidden, lowered)
    return items if hidden == joined else list(hidden.split(_BETWEEN))


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str | None:
    """Return what kind of secret a name promises, if one: `OPENAI_API_KEY`, `apiKey` and `x-api-key` an api_key."""
    if name.startswith(_MARKER):
        return None
    name = _QUALIFIER.sub("", name)
    if _LAST_WORD.search(name):
        return "password"
    if _AUTH.fullmatch(name):
        return "authorization"
    capitals = _CAPITALS.fullmatch(name)
    if capitals:
        return "token" if capitals["word"] == "PAT" else "key"
    plain = _SEPARATORS.sub("", name.lower())
    ends = [each for each in _KINDS if plain.endswith(each)]
    return _KINDS[max(ends, key=len)] if ends else None


def _parsed(text: str) -> Any:
    """Return the value of JSON text, None for what is no JSON, names a key twice or is too deep to be walked through."""
    if (
        text.count("[") + text.count("{") > _MAX_DEPTH
        # brackets in its texts count too
        and max(accumulate(1 if each in "[{" else -1 for each in _BRACKET.findall(text))) > _MAX_DEPTH
    ):
        return None
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def _written(value: JsonValue) -> str:
    """Return JSON text that can be stored: half characters stay escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key is there twice")
    return unique
