from __future__ import annotations

import json
import string
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.ledger.redaction import MIN_SECRET_CHARACTERS, Redactor, marker, named_secrets

ALPHANUMERIC = string.ascii_letters + string.digits
HARMLESS = "bdfjlmnquvwz0123456789 \n\t.,;()[]{}<>\"'\\!?|~^%#@=&股票价格\u2028🦉é"
"""Letters of which no name or form of a secret can be written."""
REDACTOR = Redactor()

harmless_texts = st.text(HARMLESS, max_size=40)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
harmless = st.dictionaries(
    harmless_texts,
    st.recursive(
        scalars | harmless_texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(harmless_texts, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def written(prefix, alphabet, least, most=40):
    return st.text(alphabet, min_size=least, max_size=most).map(lambda rest: prefix + rest)


forms = st.one_of(
    written("sk-", ALPHANUMERIC, 16),
    written("sk-proj-", ALPHANUMERIC + "-_", 16),
    written("sk_live_", ALPHANUMERIC, 16),
    written("AKIA", string.ascii_uppercase + string.digits, 16),
    written("ghp_", ALPHANUMERIC, 36),
    written("github_pat_", ALPHANUMERIC + "_", 22),
    written("xoxb-", string.digits + "-", 10),
    written("hf_", ALPHANUMERIC, 30),
    written("AIza", ALPHANUMERIC + "-_", 35),
    written("eyJhbGciOiJI.eyJzdWIiOiIx.", ALPHANUMERIC + "-_", 20),
)
"""Secrets that are known by their form."""
anything = st.text(min_size=MIN_SECRET_CHARACTERS, max_size=30).filter(lambda text: not text.isspace())
_WORDS = (
    "password PASSWD db_password apiKey x-api-key Authorization client_secret token access_token refreshToken "
    "AWS_SECRET_ACCESS_KEY private.key Cookie credentials passphrase 密码 用户口令 密钥"
)
names = st.sampled_from(_WORDS.split())


def where_it_may_be(secret, key="note"):
    """Return documents that hold the secret somewhere."""
    inside = json.dumps({"options": [{key: secret}]}, ensure_ascii=False)
    return st.sampled_from(
        [
            {key: secret},
            {"a": [{"b": {key: [secret, 1]}}]},
            {"arguments": inside},
            {"arguments": json.dumps({key: secret})},
            {"arguments": json.dumps({"body": inside})},
            {"arguments": " " + inside},
            {"content": [inside, {"text": inside}]},
        ]
    )


def all_text(value):
    """Return everything that the document says, with the JSON in its texts read too."""
    match value:
        case dict():
            return "\n".join(f"{all_text(key)}\n{all_text(each)}" for key, each in value.items())
        case list():
            return "\n".join(all_text(each) for each in value)
        case str():
            try:
                inside = json.loads(value)
            except ValueError:
                return value
            return value if isinstance(inside, str) and inside == value else f"{value}\n{all_text(inside)}"
    return str(value)


def redacted(data, redactor=REDACTOR):
    """Return what is written in place of the data."""
    return redactor.redact(data) if redactor.suspects(orjson.dumps(data)) else data


@pytest.mark.property
@given(harmless)
def test_documents_without_secrets_come_out_equal(data):
    assert REDACTOR.redact(data) == data
    assert redacted(data) == data


@pytest.mark.parametrize(
    "text",
    [
        "the risk-assessment-of-everything-we-own and task-force-something-long",
        "1,200 prompt_tokens and 12 completion tokens",
        "monkey: banana, hotkey = F1, keyboard: qwerty",
        "https://example.com:8080/path?mail=a@b.example and http://[::1]:80/",
        "the bearer of good news; a basic understanding",
        "authorization is needed; no password was given",
        '{"state_name": "load", "max_tokens": 500, "primary_key": "id", "enabled": true}',
        "password: null, token=None, secret: ''",
        "pass the salt, keep the secret, token by token",
        "bypass: everything, compass=north; the password is required and the password was wrong",
        "docker run -u 1000:1000 image; mkdir -p /srv/data; unexpected token 'else'",
        '{"name": "colour", "value": "turquoise", "hash": "abcdef0123"}',
    ],
)
def test_what_looks_a_little_like_a_secret_stays(text):
    assert REDACTOR.redact({"text": text}) == {"text": text}


@pytest.mark.property
@given(harmless, forms, harmless_texts, st.data())
def test_secrets_of_known_forms_are_never_left(data, secret, around, pick):
    """tool-registry: secret redaction is one of the safety boundaries."""
    context = f"{around} {secret} {around}" if pick.draw(st.booleans()) else secret
    planted = data | pick.draw(where_it_may_be(context))

    found = redacted(planted)

    assert secret not in all_text(found)
    assert {key: found[key] for key in data if planted[key] is data[key]} == {
        key: data[key] for key in data if planted[key] is data[key]
    }


@pytest.mark.property
@given(names, anything, st.data())
def test_whatever_stands_under_the_name_of_a_secret_goes(name, secret, pick):
    planted = pick.draw(where_it_may_be(f"§{secret}§", name))

    assert f"§{secret}§" not in all_text(redacted(planted))


@pytest.mark.property
@given(anything, harmless_texts, st.data())
def test_values_of_named_secrets_are_never_left(secret, around, pick):
    redactor = Redactor({"DATABASE_PASSWORD": f"§{secret}§"})
    planted = pick.draw(where_it_may_be(f"{around}§{secret}§{around}"))

    assert f"§{secret}§" not in all_text(redacted(planted, redactor))


@pytest.mark.property
@given(forms, names, st.data())
def test_redacting_twice_changes_nothing_more(secret, name, pick):
    once = redacted(pick.draw(where_it_may_be(f"{name}={secret} {secret}", name)))

    assert redacted(once) == once


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc", "Authorization: [redacted:authorization]"),
        ("curl -H 'authorization: Basic dXNlcjpwdw=='", "curl -H 'authorization: [redacted:authorization]'"),
        ("bearer abcdefghijklmnop.qrs", "bearer [redacted:bearer_token]"),
        ("postgresql://owl:hunter2@db:5432/owl", "postgresql://owl:[redacted:password]@db:5432/owl"),
        ("redis://:hunter2@cache/0", "redis://:[redacted:password]@cache/0"),
        ("DB_PASSWORD=hunter2 make", "DB_PASSWORD=[redacted:password] make"),
        ("https://api.example/v1?api_key=12345678&n=1", "https://api.example/v1?api_key=[redacted:api_key]&n=1"),
        ("{'password': 'hun\\'ter2', 'user': 'owl'}", "{'password': '[redacted:password]', 'user': 'owl'}"),
        ('{"password": "hunter2", "cut', '{"password": "[redacted:password]", "cut'),
        ('{"password": "hunter2 is cu', '{"password": "[redacted:password]'),
        ('say: {\\"token\\": \\"a b c\\", \\"n\\": 1}', 'say: {\\"token\\": \\"[redacted:token]\\", \\"n\\": 1}'),
        ("mysql --user owl --db-password hunter2 -e x", "mysql --user owl --db-password [redacted:password] -e x"),
        ("Set-Cookie: sid=1; path=/\nDate: now", "Set-Cookie: [redacted:cookie]\nDate: now"),
        ("密码\uff1aabc123\uff0c用户\uff1a猫", "密码\uff1a[redacted:password]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n.", "[redacted:private_key]\n."),
        ("-----BEGIN PRIVATE KEY-----\nMII and it is cut", "[redacted:private_key]"),
    ],
)
def test_the_marker_takes_the_place_of_the_secret_alone(text, left):
    assert redacted({"text": text}) == {"text": left}


SECRET = "Zq8sT3cretVal9"


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": [{"name": "password", "value": SECRET}]},
        {"variables": [{"key": "DB_PASSWORD", "value": SECRET}]},
        {"auth": {"user": "me", "pass": SECRET}, "dbPass": SECRET, "db_pass": SECRET},
        {"PASSWORD_HASH": SECRET, "client_secret_value": SECRET, "auth_token_v2": SECRET, "secretValue": SECRET},
        {"argv": ["curl", "-s", "-u", f"me:{SECRET}", "http://x"]},
        {"argv": ["/usr/bin/mysql", "-h", "db", f"-p{SECRET}"]},
        {"argv": ["sshpass", "-p", SECRET, "ssh", "host"]},
        {"command": f"curl -s -u me:{SECRET} http://x"},
        {"command": f"mysqldump -h db -p{SECRET} all"},
        {"command": f"sshpass -p '{SECRET}' ssh host"},
        {"content": f"db:\n  password: |\n    {SECRET}\n    more\n  user: owl\n"},
        {"content": f"<db><password>{SECRET}</password></db>"},
        {"content": f"CLIENT_SECRET_VALUE={SECRET}"},
        {"url": f"https://blob.example/a?se=2026&sig={SECRET}"},
        {"content": f"login failed for password '{SECRET}'"},
        {"content": f"the password is {SECRET}"},
    ],
)
def test_secrets_go_however_they_are_named(arguments):
    assert SECRET not in all_text(redacted({"arguments": json.dumps(arguments)}))
    assert SECRET not in all_text(redacted({"arguments": arguments}))


def test_what_is_hidden_in_arguments_is_hidden_in_the_rest_of_the_record():
    secret = 'Zq8"cret'
    call = {
        "tool": "shop.login",
        "arguments": json.dumps({"user": "ada", "password": secret, "pin": {"token": 12345678}}),
        "error": {"type": "execution_failed", "message": f"bad login ada {secret} 12345678"},
        "hooks": [{"hook": "watch", "reason": json.dumps({"seen": [secret]})}],
        "result": {"content": [f"<{secret}>", 12]},
    }

    left = redacted(call)

    assert secret not in all_text(left)
    assert left["error"]["message"] == "bad login ada [redacted:password] [redacted:token]"
    assert json.loads(left["hooks"][0]["reason"]) == {"seen": ["[redacted:password]"]}
    assert (left["tool"], left["result"]["content"][1]) == ("shop.login", 12)


def test_json_in_a_text_stays_json():
    arguments = '{"n": 12345678901234567890123, "f": 1.10, "user": "猫", "login": {"password": "p\\"w", "ok": true}}'

    left = redacted({"arguments": arguments})["arguments"]

    assert json.loads(left) == json.loads(arguments) | {"login": {"password": "[redacted:password]", "ok": True}}


def test_json_that_names_a_key_twice_hides_both():
    left = redacted({"arguments": '{"password": "first-one", "password": ""}'})

    assert "first-one" not in left["arguments"]


def test_escapes_of_json_hide_nothing():
    left = redacted({"arguments": '{"p\\u0061ssw\\u006frd": "hunter2"}'})

    assert json.loads(left["arguments"]) == {"password": "[redacted:password]"}


def test_everything_below_a_name_goes_but_what_can_be_no_secret():
    data = {"credentials": {"user": "owl", "pin": 1234, "set": True, "old": None, "more": ["x", ""]}}

    hidden = marker("credential")
    assert redacted(data) == {
        "credentials": {"user": hidden, "pin": hidden, "set": True, "old": None, "more": [hidden, ""]}
    }


def test_the_word_after_an_option_goes():
    assert redacted({"argv": ["mysql", "--password", "hunter2", "-e", "x"]}) == {
        "argv": ["mysql", "--password", marker("password"), "-e", "x"]
    }


def test_a_secret_that_is_a_key_goes_and_no_other_key_with_it():
    first, second = "sk-" + "a" * 20, "sk-" + "b" * 20

    left = redacted({first: 1, second: 2, "[redacted:api_key]": 3})

    assert sorted(left.values()) == [1, 2, 3]
    assert first not in all_text(left)
    assert second not in all_text(left)


def test_patterns_of_the_installation_are_searched_for():
    redactor = Redactor(patterns=["ACME-[0-9]{4}", "^猫$"])

    left = redacted({"id": "ACME-1234/ACME-12", "ACME-0000": "猫", "text": '{"a": "ACME-5678", "b": "猫!"}'}, redactor)

    assert left == {
        "id": "[redacted:custom]/ACME-12",
        "[redacted:custom]": "[redacted:custom]",
        "text": '{"a": "[redacted:custom]", "b": "猫!"}',
    }


@pytest.mark.parametrize("depth", [50, 600, 5_000])
def test_deep_json_is_searched_without_end_of_the_stack(depth):
    deep = "[" * depth + '"sk-' + "a" * 20 + '"' + "]" * depth

    assert "sk-" not in redacted({"arguments": deep})["arguments"]


def test_named_secrets_are_the_variables_that_are_named_so():
    environ = {
        "OPENAI_API_KEY": "1",
        "PGPASSWORD": "2",
        "AWS_SECRET_ACCESS_KEY": "3",
        "GITHUB_TOKEN": "4",
        "PWD": "/home/owl",
        "PATH": "/bin",
        "LANGUAGE": "zh",
        "KEYBOARD": "us",
    }

    assert named_secrets(environ) == {name: environ[name] for name in list(environ)[:4]}


@pytest.mark.parametrize(
    "form", ["gsk_" + "a1B2" * 13, "hvs." + "a1B2" * 24, "lin_api_" + "a1B2" * 10, "dop_v1_" + "0a1b" * 16]
)
def test_keys_of_services_are_found_in_a_record_that_has_nothing_else_of_a_secret(form):
    assert redacted({"said": f"it was {form}, I hear"}) == {"said": "it was [redacted:token], I hear"}


def test_short_values_of_named_secrets_are_no_secrets():
    redactor = Redactor({"A_TOKEN": "short", "B_TOKEN": ""})

    assert redacted({"text": "this is short"}, redactor) == {"text": "this is short"}


HINTS = (
    "pass curl mysql mariadb sig= signature= pwd secret token key authoriz cookie credential 密 口令 令牌 秘钥 bearer :// sk- sk_ rk- rk_"
    " akia asia xox xapp- aiza ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- hf_ gsk_ hvs."
    " lin_api_ dop_v1_ eyj \\u"
)


@pytest.mark.parametrize("hint", HINTS.split())
def test_a_record_is_looked_through_for_each_of_the_words_that_secrets_stand_behind(hint):
    text = f'{{"usage":{{"prompt_tokens":0}},"said":"nobody {hint}, nothing"}}'

    assert Redactor().suspects(text.encode())
    assert Redactor().suspects(text.upper().encode())
    assert not Redactor().suspects(text.replace(hint, "").encode())


SLACK = "https://hooks.slack.com/services/T0OWL/B0OWL/abcdefOWL"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DefaultEndpointsProtocol=https;AccountName=owl;AccountKey=b3dsb3dsb3dsb3ds==;x", "b3dsb3dsb3dsb3ds=="),
        ("signing_key: owlowlowl", "owlowlowl"),
        ("encryptionKey=owlowlowl", "owlowlowl"),
        ("_auth=b3dsOm93bA==", "b3dsOm93bA=="),
        ("export STRIPE_KEY=owl-24601", "owl-24601"),
        ("GITHUB_PAT: owl-24601", "owl-24601"),
        ('{"SHELF_KEY": "owl-24601"}', "owl-24601"),
        ('{"auth": "owl-24601"}', "owl-24601"),
        (SLACK, "T0OWL/B0OWL/abcdefOWL"),
        ("post to https://discord.com/api/webhooks/123/abcOWL now", "123/abcOWL"),
        ("https://api.telegram.org/bot123:abcOWL/sendMessage", "123:abcOWL"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/0b4f-owl", "0b4f-owl"),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=0b4f-owl", "0b4f-owl"),
        ("https://outlook.office.com/webhook/1f2e-owl@3d4c/IncomingWebhook/0b4fowl/5e6f-owl", "0b4fowl/5e6f-owl"),
        ("https://outlook.office365.com/webhook/1f2e-owl@3d4c/IncomingWebhook/0b4fowl/5e6f-owl", "1f2e-owl@3d4c"),
        ("https://hooks.zapier.com/hooks/catch/24601/abcOWL/", "24601/abcOWL"),
        ("https://hook.eu1.make.com/abcowlabcowlabcowlabcowl", "abcowlabcowlabcowlabcowl"),
        ("gsk_" + "a1B2" * 13, "a1B2"),
        ("hvs." + "CAESI" + "a1B_" * 20, "a1B_"),
        ("hvb." + "AAAAA" + "a1B_" * 30, "a1B_"),
        ("lin_api_" + "a1B2" * 10, "a1B2"),
        ("the worker uses owl_0a1B2c3D_" + "a1B2" * 10 + "x9Y_a1b2C3 now", "a1B2"),
        ("dop_v1_" + "0a1b" * 16, "0a1b"),
        *(
            (prefix + "0a1b" * 8, "0a1b0a1b")
            for prefix in (
                "gldt-",
                "glrt-",
                "rubygems_",
                "cio",
                "xai-",
                "pplx-",
                "r8_",
                "lsv2_pt_",
                "pcsk_",
                "ntn_",
                "glsa_",
                "ATATT3",
            )
        ),
        ("https://maker.ifttt.com/trigger/owl_seen/with/key/abcOWL24601", "abcOWL24601"),
        ("https://maker.ifttt.com/trigger/owl_seen/json/with/key/abcOWL24601", "abcOWL24601"),
        ("https://chat.example/hooks/abcdefghijklm0123456789xyz", "abcdefghijklm0123456789xyz"),
        ("https://chat.example/hooks/0a1b0a1b0a1b0a1b0/" + "c3D4" * 10, "c3D4c3D4"),
        ("https://hook.integromat.com/abcowlabcowlabcowl", "abcowlabcowlabcowl"),
        ("npm_" + "a1B2" * 9, "npm_" + "a1B2" * 9),
        ("pypi-AgEIcHlwaS5vcmc" + "CJDEyMzQ" * 4, "CJDEyMzQ"),
        ("whsec_" + "a1B2" * 8, "a1B2"),
        ("ya29.a0Af_" + "a1B2" * 8, "a1B2"),
        ("SG." + "a1B2" * 6 + "." + "c3D4" * 8, "c3D4"),
        ("docker login -u owl -p hush-hush registry.example", "hush-hush"),
        ("podman login registry.example -p=hush-hush", "hush-hush"),
        ("owl:hush-hush@tcp(db:3306)/shop", "hush-hush"),
        ("mongodb+srv://owl:hush-hush@db.example/shop", "hush-hush"),
        ("Server=db;Database=shop;User Id=owl;Password=hush-hush;", "hush-hush"),
        ("https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/1", "0123456789abcdef0123456789abcdef"),
        ("tokeneyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "eyJzdWIiOiIx"),
    ],
)
@pytest.mark.parametrize("where", [lambda text: {"content": text}, lambda text: {"arguments": json.dumps({"a": text})}])
def test_secrets_of_services_and_connections_are_never_left(text, secret, where):
    found = redacted(where(text))

    assert secret not in all_text(found)
    assert "[redacted:" in all_text(found)


def test_a_password_given_to_docker_as_a_word_of_a_command_goes():
    argv = ["docker", "login", "-u", "owl", "-p", "hush-hush", "registry.example"]

    assert "hush-hush" not in all_text(redacted({"arguments": json.dumps({"argv": argv})}))


@pytest.mark.parametrize(
    "text",
    [
        "the author was authenticated; path=/usr/bin, PATH and patterns",
        '{"PRIMARY_KEY": "identity", "PUBLIC_KEY": "ssh-rsa AAAA", "sort_key": "name", "author": "somebody"}',
        "npm_config_cache and pypi-mirror; ya29 is no token",
        "a key idea: hooks.slack.com has webhooks",
        "https://outlook.office.com/mail/inbox, https://zapier.com/apps and hooks.zapier.com/hooks/",
        "gsk_ and dop_v1_ and lin_api_ are prefixes; hvs.vault, a webhook; https://make.com/en/hook",
        "r8_ and xai-grok and pplx-api, cio and ntn_; a social precious glsa_ and src/hooks/useOwl and /hooks/before-tool",
        "a checker logs in with -p 8080:80",
    ],
)
def test_words_of_services_that_are_no_secrets_stay(text):
    assert redacted({"text": text}) == {"text": text}


def test_variables_that_hold_secrets_are_known_by_name_and_by_the_password_in_their_address():
    environ = {
        "STRIPE_KEY": "owl-24601",
        "GITHUB_PAT": "owl-24602",
        "SHELF_KEY": "owl-24603",
        "REGISTRY_AUTH": "owl-24604",
        "DATABASE_URL": "postgresql://shop:owl%3A24605@db/shop",
        "HOME_URL": "https://shop.example:8080/a@b",
        "PATH": "/usr/bin",
        "OLDPWD": "/root",
    }

    secrets = named_secrets(environ)

    assert secrets == {name: environ[name] for name in environ.keys() & secrets.keys() - {"DATABASE_URL"}} | {
        "DATABASE_URL": "owl:24605"
    }
    assert sorted(secrets) == ["DATABASE_URL", "GITHUB_PAT", "REGISTRY_AUTH", "SHELF_KEY", "STRIPE_KEY"]


REPEATED = [
    *(
        "mysql-",
        "eyJ",
        "curl ",
        "mysql ",
        "curl -u a",
        "sshpass -p",
        "docker login ",
        "docker ",
        "sk-a",
        "password ",
        "password:'",
    ),
    *(
        "<password",
        "<password ",
        "<a",
        "://",
        "://a:",
        "?sig=",
        "-----BEGIN PRIVATE KEY",
        "cookie: ",
        "bearer ",
        "--a",
        "--password",
    ),
    *(
        "password: |\n a\n",
        'password:\\"',
        '"password":"a",',
        "A_KEY",
        "A_",
        "KEY_",
        "ghp_",
        "xoxb-",
        "npm_a",
        "whsec_",
        "SG.",
        "SG.a.",
    ),
    *(
        "hooks.slack.com/services/",
        "outlook.office.com/webhook/a",
        "hooks.zapier.com/hooks/catch/",
        "hook.a.",
        "gsk_a",
        "hvs.",
        "lin_api_",
        "dop_v1_",
        "a:b@tcp",
        "a.",
        "eyJa.eyJb.",
        "rubygems_",
        "cioa",
        "xai-a",
        "lsv2_pt_",
        "owl_aaaaaaaa_",
        "ATATT3",
        "maker.ifttt.com/trigger/a",
        "/hooks/a",
        "/hooks/aaaaaaaaaaaaaaaaaaaa/",
        "_auth",
        "0123456789abcdef",
        '{"password":"a"},',
        "[",
        "\\u0061key",
    ),
]
"""What texts are made of that take an expression long that is not written with care."""


def cost(data):
    """Return the processor seconds that the data takes, of several tries the least: what else the machine does adds to some."""
    tries = []
    for _ in range(3):
        begun = time.process_time()
        redacted(data)
        tries.append(time.process_time() - begun)
    return min(tries)


@pytest.mark.parametrize("unit", REPEATED)
def test_the_work_grows_as_the_text_does(unit):
    """A text four times as long takes about four times as much work; it would be sixteen if the work grew with the square."""
    short, long = ({"content": unit * (size // len(unit))} for size in (12_000, 48_000))

    assert cost(long) < 9 * max(cost(short), 0.003)


def test_the_work_grows_as_the_secrets_of_a_call_do():
    def calls(number):
        given = {f"{each}_token": f"value-{each:07}" for each in range(number)}
        return {"arguments": json.dumps(given), "content": list(given.values())}

    assert cost(calls(4_000)) < 9 * max(cost(calls(1_000)), 0.003)


def test_of_a_call_with_very_many_secrets_no_text_of_its_result_is_told():
    given = {f"{each}_token": f"value-{each:07}" for each in range(1_000)}
    data = {
        "tool": "shop.pay",
        "arguments": json.dumps(given),
        "content": [{"said": "value-0000999"}],
        "duration_ms": 3,
    }

    found = redacted(data)

    assert "value-0000999" not in all_text(found)
    assert (found["tool"], found["duration_ms"]) == ("shop.pay", 3)
    assert "999_token" in found["arguments"]


@pytest.mark.parametrize(
    "text",
    [
        r'{"text": "cut \ud83d", "token": "abcdefgh123"}',
        r'["\udc00", {"deep": "{\"password\": \"\\ud800hunter22\"}"}]',
        r'{"\ud800": {"api_key": "abcdefgh123"}}',
    ],
)
def test_json_in_a_text_that_spells_half_characters_is_redacted_and_can_be_stored(text):
    redacted = Redactor().redact({"arguments": text})

    stored = orjson.dumps(redacted)
    assert b"abcdefgh123" not in stored
    assert b"hunter22" not in stored
    assert json.loads(redacted["arguments"])
