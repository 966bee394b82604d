"""Scripts that let a shell complete commands, options and paths."""

from collections.abc import Mapping, Sequence

_BASH = """\
_indextables() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    elif [[ "$word" == -* ]]; then
        case "$command" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ -z "$words" ] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _indextables indextables
"""


def script(shell: str, commands: Mapping[str, Sequence[str]]) -> str:
    """The script for a shell."""
    if shell == "fish":
        return _fish(commands)
    cases = "\n".join(f'            {name}) words="{" ".join(flags)}" ;;' for name, flags in commands.items())
    bash = _BASH.format(commands=" ".join(commands), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash}" if shell == "zsh" else bash


def _fish(commands: Mapping[str, Sequence[str]]) -> str:
    lines = [
        f"complete -c indextables -n __fish_use_subcommand -f -a '{' '.join(commands)}'",
        *(
            f"complete -c indextables -n '__fish_seen_subcommand_from {name}' -l {flag.removeprefix('--')}"
            for name, flags in commands.items()
            for flag in flags
        ),
    ]
    return "\n".join(lines) + "\n"
