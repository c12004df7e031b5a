"""`make images`: build every target, and say where its archive is and how large."""

import argparse
import sys

from tests.kubernetes.images.build import CannotBuildError, build, image_name


def main() -> int:
    """Build; 1 if that is not possible here."""
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("--tag", default="dev", help="tag of the images")
    arguments = parser.parse_args()
    try:
        archives = build(arguments.tag)
    except CannotBuildError as error:
        print(f"make images: {error}", file=sys.stderr)
        return 1
    for target, archive in archives.items():
        print(f"{image_name(target, arguments.tag)}  {archive.stat().st_size / 1e6:.0f} MB  {archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
