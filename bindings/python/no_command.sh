#!/bin/sh
# The command `phasor` of a Python package that was built without it.
cat >&2 <<'TEXT'
phasor: this Python package was built without the command, because CLI11 or fmt was not found. On Debian: apt-get install libcli11-dev libfmt-dev, then install the package from its source again
TEXT
exit 2
