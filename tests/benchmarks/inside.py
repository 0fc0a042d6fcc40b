"""A program for the tests of `benchmarks.attached`."""

import sys

from benchmarks.attached import found, tell

if __name__ == "__main__":
    address, *arguments = sys.argv[1:]
    if arguments == ["fail"]:
        sys.exit("the ray is bent")
    tell(f"attached to {address}")
    sys.stdout.write("what libraries print\n")
    found({"arguments": arguments})
