"""Where programs run what they read: a table of programs, and a scanner that says what each word of a command is.

A program of the table that starts another one (`env`, `timeout`, `find -exec`) is seen through. Of a program that is not in it, every
word is data, until one that is the name of an interpreter: that one is taken to be started (`docker exec web sh -c CODE`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from pathlib import PurePath

from msgspec import Struct


class WordRole(IntEnum):
    """What a word of a command is to the program that reads it, the most dangerous first."""

    CODE = 0
    """It is run, or says what is run."""
    WORD = 1
    """Data, unless it begins as options do."""
    FREE = 2
    """Data: the options have ended."""
    STDIN = 3
    """A program that runs what comes on its stdin."""


class _Operands(Enum):
    """What a program does with the words that are no options."""

    DATA = "reads them"
    SCRIPT = "runs the first, unless an option gave the code; the others are arguments of that code"
    FILTER = "as a script, but options may follow"
    CODE = "runs them"
    COMMAND = "starts them: a program and its arguments"


class _Kind(Enum):
    """What the value of an option is."""

    RUNS = "code, in place of a script"
    LAST = "code, and whatever follows is arguments of it"
    MODULE = "code, and whatever follows is run by it, unless it is known to be harmless"
    LOADS = "what else is run, or how"
    ALSO = "code, and a script may follow"
    STARTS = "a command, up to `;` or `+`"
    SETS = "NAME=VALUE"
    TAKES = "data"
    PLACES = "what stands for words of stdin"
    OPENS = "no value: operands are opened as Perl does, which starts `program|`"
    READS = "no value: the code is on stdin"


_FLAGS = frozenset({_Kind.OPENS, _Kind.READS})


class _Program(Struct, frozen=True):
    operands: _Operands
    before: int
    """How many operands come before those."""
    options: Mapping[str, _Kind]
    """Those that take a value, and flags that matter; all others are flags."""
    words: bool
    """Whether an option is a whole word behind one dash or two (`-exec`), and `--` ends nothing."""
    assigns: bool
    """Whether NAME=VALUE may stand before the command."""
    bundles: bool
    """Whether the first word is letters of options, with a dash or without (`tar cf`)."""
    dash: bool
    """Whether `-` ends the options."""
    stdin: bool
    """Whether it runs what comes on stdin if it was told no code."""
    appends: bool
    """Whether words of stdin follow the command."""
    inside: str
    """What the command's name begins with in the table (`git clone`)."""


def _program(
    operands: _Operands,
    before: int = 0,
    *,
    words: bool = False,
    assigns: bool = False,
    bundles: bool = False,
    dash: bool = False,
    stdin: bool = False,
    appends: bool = False,
    inside: str = "",
    **options: str,
) -> _Program:
    kinds = {each: _Kind[kind.upper()] for kind, names in options.items() for each in names.split()}
    return _Program(operands, before, kinds, words, assigns, bundles, dash, stdin, appends, inside)


_DATA, _SCRIPT, _CODE, _COMMAND = _Operands.DATA, _Operands.SCRIPT, _Operands.CODE, _Operands.COMMAND
_PROGRAMS = {
    # shells and interpreters
    r"(?:r?ba|da|a|r?z|r?k|mk|lok?|lk|pdk|c|tc|ya|o|y|po|sa|hu|static-)?sh": _program(
        _SCRIPT, dash=True, stdin=True, reads="-s", loads="-o +o -O +O --rcfile --init-file"
    ),
    r"fish|nu|xonsh|elvish|expect": _program(
        _SCRIPT, stdin=True, runs="-c --command --commands", loads="-C --init-command -d -D"
    ),
    r"(?:i|micro|j)?pythonw?|pypy|graalpy": _program(
        _SCRIPT, stdin=True, last="-c", module="-m", loads="-W -X --check-hash-based-pycs"
    ),
    r"perl": _program(_SCRIPT, stdin=True, runs="-e -E", loads="-I -M -m -V", opens="-n -p -a -F"),
    r"(?:j|truffle)?ruby": _program(
        _SCRIPT, stdin=True, runs="-e", loads="-r -I -F --require", takes="-C -E --encoding"
    ),
    r"node|nodejs": _program(
        _SCRIPT,
        stdin=True,
        runs="-e --eval",
        loads="-r -C --require --import --loader --experimental-loader --conditions --env-file --env-file-if-exists",
    ),
    r"deno|bun": _program(_SCRIPT, 1, runs="-e --eval", loads="-r -c --preload --require --import --config"),
    r"php": _program(
        _SCRIPT,
        stdin=True,
        runs="-r -R -B -E -f -F --run --file --process-code --process-file",
        loads="-d -c -z --define",
    ),
    r"lua(?:jit)?": _program(_SCRIPT, stdin=True, also="-e", loads="-l -j"),
    r"tclsh|wish": _program(_SCRIPT, stdin=True, loads="-encoding", words=True),
    r"Rscript": _program(_SCRIPT, runs="-e", loads="--default-packages"),
    r"R": _program(_CODE, stdin=True, runs="-e -f --file"),
    r"julia": _program(_SCRIPT, stdin=True, runs="-e -E --eval --print", loads="-L -J --load --sysimage --project"),
    r"osascript": _program(_SCRIPT, stdin=True, runs="-e", loads="-l"),
    r"pwsh|powershell": _program(_CODE, stdin=True, words=True, last="-File -file -f"),
    r"java": _program(
        _SCRIPT,
        words=True,
        last="-jar -m -module",
        loads="-cp -classpath -class-path -p -module-path -upgrade-module-path -add-modules",
        takes="-source -add-opens -add-exports -add-reads -limit-modules -enable-native-access",
    ),
    r"(?:[gmnb]|original-)?awk": _program(
        _SCRIPT,
        runs="-f -e -E --file --source --exec",
        loads="-i -l -W --include --load",
        sets="-v --assign",
        takes="-F --field-separator",
    ),
    r"g?sed": _program(_Operands.FILTER, runs="-e -f --expression --file", takes="-l --line-length"),
    r"dc": _program(_SCRIPT, stdin=True, runs="-e -f --expression --file"),
    r"g?make": _program(_CODE, runs="-f -C -E -I --file --makefile --directory --include-dir --eval", takes="-o -W"),
    # databases, editors, debuggers
    r"sqlite|duckdb": _program(
        _CODE,
        1,
        stdin=True,
        words=True,
        runs="-cmd -init -c -s",
        takes="-separator -newline -nullvalue -vfs -maxsize -mmap -nonce -heap",
    ),
    r"psql": _program(
        _DATA,
        stdin=True,
        runs="-c -f --command --file",
        loads="-o -P --output --pset",
        takes="-d -h -p -U -v -F -R -T -L",
    ),
    r"mysql|mariadb": _program(
        _DATA, stdin=True, runs="-e --execute", loads="--init-command --pager", takes="-h -u -P -D -S"
    ),
    r"mongo(?:sh)?": _program(
        _CODE,
        stdin=True,
        runs="-f --eval --file",
        takes="-u -p --host --port --username --password --authenticationDatabase",
    ),
    r"clickhouse(?:-client)?": _program(_DATA, runs="-q --query --queries-file"),
    r"g?vi(?:m|mdiff|ew)?|nvim|view|ex": _program(_DATA, runs="+ -c -S -u -U --cmd", takes="-i -T -w -W -t"),
    r"less|more": _program(
        _DATA, runs="+ -k --lesskey-file --lesskey-src --lesskey-content", takes="-o -O -p -P -t -T"
    ),
    r"emacs": _program(
        _DATA, words=True, runs="-eval -e -execute -f -funcall -l -load -script -x", loads="-L -directory"
    ),
    r"emacsclient": _program(_CODE, runs="-a -e --alternate-editor --eval", takes="-s -f --socket-name --server-file"),
    r"gdb": _program(
        _CODE,
        words=True,
        runs="-ex -iex -x -ix -eval-command -init-eval-command -command -init-command",
        loads="-data-directory -e -exec -s -symbols -se",
        takes="-c -core -p -pid -d -directory -cd -b -l -tty",
        starts="-args",
    ),
    r"lldb": _program(_DATA, runs="-o -O -s -S -k -K --one-line --source --one-line-before-file --source-before-file"),
    # programs with options that start others
    r"g?sort": _program(_DATA, runs="--compress-program"),
    r"g?split": _program(_DATA, runs="--filter"),
    r"find": _program(_DATA, words=True, starts="-exec -execdir -ok -okdir"),
    r"(?:bsd|g)?tar": _program(
        _DATA,
        bundles=True,
        runs="-I -F --use-compress-program --to-command --checkpoint-action --info-script --new-volume-script --rsh-command"
        " --rmt-command",
        takes="-f -C -T -X -b -g -K -L -N -V --checkpoint --file --directory",
    ),
    r"rsync": _program(_DATA, runs="-e -M --rsh --rsync-path --remote-option --config", takes="-f -T -B"),
    r"scp": _program(_DATA, runs="-o -F -S -D", takes="-c -i -J -l -P -X"),
    r"sftp": _program(_DATA, stdin=True, runs="-b", loads="-o -F -S -D -s", takes="-B -c -i -J -l -P -R -X"),
    r"ssh": _program(
        _CODE, 1, stdin=True, loads="-o -F -I", takes="-B -b -c -D -E -e -i -J -L -l -m -O -p -Q -R -S -W -w"
    ),
    r"git": _program(
        _COMMAND, inside="git ", runs="-c -C --config-env --exec-path --git-dir --work-tree", takes="--namespace"
    ),
    r"git clone": _program(_DATA, runs="-c -u --config --upload-pack --template"),
    r"git (?:fetch|pull|push|ls-remote|archive|init|fetch-pack|send-pack)": _program(
        _DATA, runs="--upload-pack --receive-pack --exec --template"
    ),
    r"git (?:rebase|difftool|mergetool|grep)": _program(
        _DATA, runs="-x -t -O --exec --extcmd --tool --open-files-in-pager"
    ),
    r"git (?:config|bisect|filter-branch|submodule|submodule--helper|hook|merge-index|remote-ext)": _program(_CODE),
    # programs that start others
    r"env": _program(_COMMAND, assigns=True, runs="-S --split-string", takes="-u -C --unset --chdir --argv0 -a"),
    r"sudo|doas": _program(_COMMAND, assigns=True, takes="-u -g -h -p -C -D -R -T -U -r -t --user --group --chdir"),
    r"nohup|setsid|busybox|toybox": _program(_COMMAND),
    r"nice": _program(_COMMAND, takes="-n --adjustment"),
    r"stdbuf": _program(_COMMAND, takes="-i -o -e --input --output --error"),
    r"ionice": _program(_COMMAND, takes="-c -n -p -P -u --class --classdata --pid --pgid --uid"),
    r"time": _program(_COMMAND, takes="-o -f --output --format"),
    r"ld(?:-.*)?\.so(?:\.[0-9]+)?": _program(_COMMAND, loads="--library-path --preload --audit", takes="--argv0"),
    r"timeout|gtimeout": _program(_COMMAND, 1, takes="-k -s --kill-after --signal"),
    r"chroot|chrt|taskset": _program(_COMMAND, 1, takes="-T -P -D --userspec --groups"),
    r"flock": _program(_COMMAND, 1, runs="-c --command", takes="-w -E --timeout --conflict-exit-code"),
    r"strace|ltrace": _program(
        _COMMAND, loads="-o --output", sets="-E --env", takes="-e -p -s -a -u -I -O -P -S -X -b -U -n -A -D -F -l -x"
    ),
    r"unshare|nsenter": _program(_COMMAND, takes="-t -S -G -R -w --target --setuid --setgid --root --wd"),
    r"xargs": _program(
        _COMMAND,
        appends=True,
        places="-I",
        takes="-a -d -E -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-chars",
    ),
    r"npx|uvx|bunx": _program(_COMMAND, runs="-c --call", loads="-p --package --from --with --python --shell"),
    r"parallel": _program(_CODE, stdin=True),
    r"eval|source|su|runuser|script|watch": _program(_CODE),
}
"""Programs by their names, and what they run. An option that is in no set takes no value."""
_VARIANT = r"(?:-?[0-9][0-9.]*[a-z]?(?:-[\w.-]+)?)?(?:[-.](?:static|dbg|debug|distrib|exe|basic|tiny|nox|gtk))?"
_KNOWN = tuple((re.compile(f"(?:{name}){_VARIANT}"), program) for name, program in _PROGRAMS.items())
"""Names may end in a version and a variant: `ksh93`, `python3.11-dbg`, `bash-static`."""
_HARMLESS_MODULES = frozenset({"json.tool", "base64", "calendar", "gzip", "tabnanny", "tokenize", "quopri"})
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_RUN_VARIABLE = re.compile(
    r"(?:DY)?LD_.*|.*PATH|HOME|ZDOTDIR|XDG_.*|MAKE.*|[A-Z]*INIT|(?:PSQL|WGET|INPUT|MYVIM)RC|_?JAVA_.*|JDK_.*|.*ASKPASS|IFS|PS4|PROMPT_COMMAND|(?:BASH_)?ENV|SHELL(?:OPTS)?|BASH.*|(?:PYTHON|PERL|RUBY|NODE_|GIT_|LUA).*"
    r"|.*(?:EDITOR|PAGER|BROWSER|VISUAL|LESSOPEN|LESSCLOSE|OPTIONS|OPTS?|FLAGS|COMMAND|RSH)"
)
"""Variables that say what programs run."""
_FIELD = "{{"
_STDIN_WORD = "{{stdin}}"


def roles(words: Sequence[str]) -> list[WordRole]:
    """Return what each word of a command is, its program first. Words may hold `{{field}}`."""
    return list(_command(words))


def _command(words: Sequence[str], inside: str = "") -> Iterator[WordRole]:
    if not words:
        return
    program = _known(inside + PurePath(words[0]).name)
    if program is None:
        yield WordRole.CODE
        rest = words[1:]
        found = _data(rest)
        for start, word in enumerate(rest):
            started = _known(PurePath(word).name)
            if started is not None and (started.inside or started.operands is not _COMMAND):
                found[start:] = map(min, found[start:], _command(rest[start:]))
        yield from found
    else:
        reader = _Reader(program, words[1:])
        told = list(reader.roles())
        yield WordRole.STDIN if reader.runs_stdin else WordRole.CODE
        yield from told


def _known(name: str) -> _Program | None:
    return next((program for pattern, program in _KNOWN if pattern.fullmatch(name)), None)


def _data(words: Sequence[str]) -> list[WordRole]:
    end = words.index("--") if "--" in words else len(words)
    return [WordRole.WORD if at <= end else WordRole.FREE for at in range(len(words))]


class _Reader:
    """Reads the arguments of one program as it does."""

    def __init__(self, program: _Program, words: Sequence[str]) -> None:
        self._program, self._words = program, words
        self._at = 0
        self._values: list[_Kind] = []
        """What the options that were read want."""
        self._operands = 0
        self._place = ""
        """What xargs replaces by words of stdin."""
        self._free = self._has_code = self._all_code = self._told = self._from_stdin = False

    @property
    def runs_stdin(self) -> bool:
        """Whether what comes on stdin is run, once the arguments were read."""
        return self._from_stdin or (self._program.stdin and not self._told)

    def roles(self) -> Iterator[WordRole]:
        """Yield what each argument is."""
        while self._at < len(self._words):
            word = self._words[self._at]
            if self._values:
                yield from self._value(self._values.pop(0), word)
            elif self._free or not self._is_option(word):
                yield from self._operand(word)
            else:
                self._at += 1
                yield self._option(word)

    def _is_option(self, word: str) -> bool:
        signs = ("-", "+") if any(each.startswith("+") for each in self._program.options) else ("-",)
        if word == "-":
            return self._program.assigns or self._program.dash
        return word.startswith(signs) or (self._program.bundles and not self._at)

    def _option(self, word: str) -> WordRole:
        if (word == "--" and not self._program.words) or (word == "-" and self._program.dash):
            self._free = True
            return WordRole.WORD
        found = list(self._values_of(word))
        self._values = [kind for kind, value in found if value is None]
        told = [self._taken(kind, value) for kind, value in found if value is not None]
        if told:
            return told[-1]
        return WordRole.CODE if _FIELD in word and self._program.operands is not _Operands.DATA else WordRole.WORD

    def _values_of(self, word: str) -> Iterator[tuple[_Kind, str | None]]:
        """Yield the options of a word that take a value or matter, and their value where it stands in the word."""
        program = self._program
        name, equals, value = word.partition("=")
        name = f"-{name.lstrip('-')}" if program.words else name
        kind = program.options.get(name)
        if kind is None and (name.startswith("--") or (program.words and len(name) > 2)):
            kind = next((each for option, each in program.options.items() if option.startswith(name)), None)
        if kind is not None:
            yield kind, "" if kind in _FLAGS else value if equals else None
        elif _FIELD in name and (program.words or name.startswith("--")):
            yield _Kind.RUNS, value
        elif not program.words and not name.startswith("--"):
            yield from self._letters(word)

    def _letters(self, word: str) -> Iterator[tuple[_Kind, str | None]]:
        signed = word.startswith(("-", "+"))
        sign = word[0] if signed else "-"
        if sign in self._program.options:
            yield self._program.options[sign], word[1:]
            return
        for at in range(int(signed), len(word)):
            kind = self._program.options.get(sign + word[at])
            if word.startswith(_FIELD, at):
                yield _Kind.RUNS, word[at:]
                return
            if kind in _FLAGS:
                yield kind, ""
            elif kind is not None:
                yield kind, (word[at + 1 :] or None) if signed else None
                if signed:
                    return

    def _value(self, kind: _Kind, word: str) -> Iterator[WordRole]:
        if kind is _Kind.STARTS:
            rest = self._words[self._at :]
            ends = (at for at, each in enumerate(rest) if each == ";" or (each == "+" and rest[at - 1] == "{}"))
            started = rest[: next(ends, len(rest))]
            self._at += len(started)
            yield from _command(started)
        else:
            self._at += 1
            yield self._taken(kind, word)
            if kind in {_Kind.LAST, _Kind.MODULE}:
                yield from self._rest_is(self._arguments)

    def _taken(self, kind: _Kind, value: str) -> WordRole:
        self._all_code |= kind is _Kind.OPENS or (kind is _Kind.MODULE and value not in _HARMLESS_MODULES)
        self._has_code |= kind in {_Kind.RUNS, _Kind.LAST, _Kind.MODULE}
        self._told |= self._has_code or kind is _Kind.ALSO
        self._from_stdin |= kind is _Kind.READS or (kind is _Kind.RUNS and value in _STDIN)
        if kind is _Kind.PLACES:
            self._place = value
        if kind is _Kind.SETS:
            name, equals, _ = value.partition("=")
            return (
                WordRole.WORD if equals and _FIELD not in name and not _RUN_VARIABLE.fullmatch(name) else WordRole.CODE
            )
        return WordRole.WORD if kind is _Kind.TAKES or kind in _FLAGS else WordRole.CODE

    def _operand(self, word: str) -> Iterator[WordRole]:
        program, place = self._program, self._operands
        data = WordRole.CODE if self._all_code else WordRole.FREE if self._free else WordRole.WORD
        if program.assigns and "=" in word.partition(_FIELD)[0]:
            self._at += 1
            yield self._taken(_Kind.SETS, word)
            return
        if program.operands is _COMMAND and place >= program.before:
            yield from self._rest_is(self._started)
            return
        self._at += 1
        self._operands += 1
        match program.operands:
            case _Operands.DATA:
                yield WordRole.CODE if "+" in program.options and not self._free else data
            case _Operands.CODE | _Operands.COMMAND:
                yield data if place < program.before else WordRole.CODE
                self._is_code(word, told=place >= program.before)
            case _Operands.SCRIPT | _Operands.FILTER if self._has_code:
                yield data
            case _Operands.SCRIPT | _Operands.FILTER:
                yield WordRole.CODE
                self._has_code = place == program.before
                self._is_code(word, told=True)
                if self._has_code and program.operands is _SCRIPT:
                    yield from self._rest_is(self._arguments)

    def _is_code(self, word: str, *, told: bool) -> None:
        self._told |= told
        self._from_stdin |= told and word in _STDIN

    def _arguments(self, words: Sequence[str]) -> list[WordRole]:
        return [WordRole.CODE] * len(words) if self._all_code else _data(words)

    def _started(self, words: Sequence[str]) -> Iterable[WordRole]:
        inside = self._program.inside
        if self._program.appends:
            filled = (
                [word.replace(self._place, _STDIN_WORD) for word in words] if self._place else [*words, _STDIN_WORD]
            )
            told = zip(filled, _command(filled), strict=True)
            self._from_stdin |= any(role is WordRole.CODE and _STDIN_WORD in word for word, role in told)
        return _command(words, inside)

    def _rest_is(self, reading: Callable[[Sequence[str]], Iterable[WordRole]]) -> Iterator[WordRole]:
        rest = self._words[self._at :]
        self._at = len(self._words)
        yield from reading(rest)
