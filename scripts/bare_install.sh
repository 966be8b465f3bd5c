#!/bin/sh
# bare_install.sh FOLDER SDIST: installs a source distribution of the Python package in a Debian 12 that has a compiler
# and Python alone, then runs the package's tests there. The system is made in FOLDER by debootstrap, once. The clone is
# seen inside as /clone, read-only. As root, for mounts and chroot; the mounts end with the script.
set -eu

[ $# -eq 2 ] || {
  echo "usage: bare_install.sh FOLDER SDIST" >&2
  exit 2
}
[ "$(id -u)" = 0 ] || {
  echo "bare_install: chroot needs root, got user $(id -un)" >&2
  exit 2
}
clone=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
sdist=$(realpath "$2")
mkdir -p "$1"
folder=$(CDPATH='' cd -- "$1" && pwd -P)

# python3-dev: Python's headers. It brings those of zlib, which Python itself needs.
[ -f "$folder/.made" ] || {
  echo "bare_install: making a Debian 12 in $folder" >&2
  debootstrap --variant=minbase --include=g++,python3-dev,python3-venv,ca-certificates bookworm "$folder" >"$folder.log" 2>&1 || {
    tail -n 20 "$folder.log" >&2
    exit 1
  }
  : >"$folder/.made"
}
mkdir -p "$folder/clone" "$folder/certificates"
cp "$sdist" "$folder/tmp/"
# This machine's, which may know a proxy.
cp /etc/ssl/certs/ca-certificates.crt "$folder/certificates/all.crt"
cp /etc/resolv.conf "$folder/etc/resolv.conf"

cat >"$folder/tmp/install.sh" <<'INSIDE'
set -eu
export PIP_CERT=/certificates/all.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 MPLBACKEND=Agg
rm -rf /venv
python3 -m venv /venv
echo "bare_install: pip install $1" >&2
start=$(date +%s)
/venv/bin/pip install --quiet "/tmp/$1"
echo "bare_install: installed after $(($(date +%s) - start)) s" >&2
/venv/bin/python -c 'import phasor; print(phasor.build_info())'
/venv/bin/phasor --version || echo "bare_install: the command exits with $?" >&2
/venv/bin/pip install --quiet pytest ml_dtypes matplotlib sacrebleu
cd /tmp
/venv/bin/python -m pytest -q -p no:cacheprovider --rootdir /clone/bindings/python/tests /clone/bindings/python/tests/*_test.py
INSIDE
# shellcheck disable=SC2016  # expanded by the inner shell
exec unshare --mount sh -eu -c '
  mount --bind "$1" "$0/clone"
  mount -o remount,bind,ro "$0/clone"
  mount --bind /dev "$0/dev"
  mount -t proc proc "$0/proc"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$0" sh /tmp/install.sh "$2"
' "$folder" "$clone" "$(basename "$sdist")"
