"""`official-bert SCRIPT --flags...`, also `python -m official_bert SCRIPT --flags...`: every script in one command."""

import difflib
import os
import sys

from official_bert import __version__
from official_bert.commands import GROUPS, NAMES, RENAMED, all_commands, start
from official_bert.options.command import exiting_with_one_line
from official_bert.support.errors import UserError


def main() -> None:
    """Run the script that the first argument names, or list the scripts."""
    program = os.path.basename(sys.argv[0])
    if program == "__main__.py":
        program = "python -m official_bert"
    if sys.argv[1:2] == ["help"] and len(sys.argv) == 3:  # as git has it
        sys.argv[1:] = [sys.argv[2], "--help"]
    name = sys.argv[1] if len(sys.argv) > 1 else None
    if name in NAMES:
        sys.argv[:2] = [f"{program} {name}"]  # one word, so that messages and absl's help show the whole command
        start(name)
    sys.argv[0] = program
    with exiting_with_one_line():
        if name in ("--help", "-h", "help"):
            sys.stdout.write(_help_text(program))
        elif name == "--version":
            sys.stdout.write(f"official-bert {__version__}\n")
        else:
            raise UserError(f"{_what_is_wrong(name)}; {program} --help lists the scripts")


def _help_text(program: str) -> str:
    width, commands, rows = max(map(len, NAMES)), all_commands(), ""
    for group, names in GROUPS.items():
        rows += f"\n{group}:\n" + "".join(f"  {name:<{width}}  {commands[name].summary}\n" for name in names.split())
    return f"""usage: {program} SCRIPT --flags...
       {program} SCRIPT --help
       {program} --version
{rows}"""


def _what_is_wrong(name: str | None) -> str:
    if name is None:
        return "no script is given"
    if name.startswith("-"):
        return f"the first argument must be the name of a script, not {name!a}"
    if name in RENAMED:
        return f"{name} is now {RENAMED[name]}"
    similar = difflib.get_close_matches(os.path.basename(name).removesuffix(".py"), NAMES, n=1)
    return f"there is no script {name!a}" + (f" (did you mean {similar[0]}?)" if similar else "")


if __name__ == "__main__":
    main()
