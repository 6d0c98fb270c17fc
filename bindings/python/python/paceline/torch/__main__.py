"""``python -m paceline.torch build`` compiles the backend ahead of its first use."""

import argparse
import sys

from paceline.torch._build import BuildError, build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m paceline.torch", description=__doc__)
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    try:
        print(build(verbose=not arguments.quiet).__file__)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
