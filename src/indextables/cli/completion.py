"""Scripts that let a shell complete commands, options, their choices, and paths."""

import argparse
from dataclasses import dataclass, field

_BASH = """\
_indextables() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="${{COMP_WORDS[1]}}" words="" files=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "$command $before" in
{values}
            *)  case "$word" in
                -*) case "$command" in
{flags}
                    esac ;;
                *)  files=yes
                    case "$command" in
{choices}
                    esac ;;
                esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ -n "$files" ]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _indextables indextables
"""
_ZSH = """\
(( $+functions[compdef] )) || { autoload -U compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass(slots=True)
class _Completed:
    """A command: its help, its options with theirs, what those take, and words without dashes."""

    help: str
    flags: dict[str, str] = field(default_factory=dict)
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    words: tuple[str, ...] = ()


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a shell."""
    commands = _commands(parser)
    if shell == "fish":
        return _fish(commands)
    bash = _bash(commands)
    return _ZSH + bash if shell == "zsh" else bash


def _commands(parser: argparse.ArgumentParser) -> dict[str, _Completed]:
    """What the parser understands."""
    parsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    helps = {action.dest: action.help or "" for action in parsers._choices_actions}  # noqa: SLF001
    found = {}
    for name, made in parsers.choices.items():
        found[name] = entry = _Completed(helps[name])
        for action in made._actions:  # noqa: SLF001
            choices = tuple(str(c) for c in action.choices or ())
            for flag in (f for f in action.option_strings if f.startswith("--")):
                entry.flags[flag] = action.help or ""
                # An option that takes something: its choices, or a file, or what only the user knows.
                if action.nargs != 0:
                    entry.values[flag] = choices
            if not action.option_strings and choices:
                entry.words = choices
    return found


def _bash(commands: dict[str, _Completed]) -> str:
    values = [
        f'            "{name} {flag}") words="{" ".join(choices)}"{"" if choices else "; files=yes"} ;;'
        for name, entry in commands.items()
        for flag, choices in entry.values.items()
    ]
    flags = [
        f'                    {name}) words="{" ".join(entry.flags)}" ;;' for name, entry in commands.items()
    ]
    choices = [
        f'                    {name}) words="{" ".join(entry.words)}" ;;'
        for name, entry in commands.items()
        if entry.words
    ]
    return _BASH.format(
        commands=" ".join(commands),
        values="\n".join(values),
        flags="\n".join(flags),
        choices="\n".join(choices),
    )


def _fish(commands: dict[str, _Completed]) -> str:
    lines = []
    for name, entry in commands.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines.append(
            f"complete -c indextables -n __fish_use_subcommand -f -a {name} -d '{_quoted(entry.help)}'"
        )
        if entry.words:
            lines.append(f"complete -c indextables {seen} -a '{' '.join(entry.words)}'")
        for flag, help_ in entry.flags.items():
            line = f"complete -c indextables {seen} -l {flag.removeprefix('--')} -d '{_quoted(help_)}'"
            if flag in entry.values:
                line += " -r"
            if entry.values.get(flag):
                line += f" -f -a '{' '.join(entry.values[flag])}'"
            lines.append(line)
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
