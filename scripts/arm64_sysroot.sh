#!/bin/sh
# arm64_sysroot.sh FOLDER PACKAGE...: unpacks Debian's arm64 packages and their dependencies into FOLDER. Nothing is
# installed on this machine and no package script runs, so no root rights are needed; apt keeps its state in FOLDER.
set -eu

[ $# -ge 2 ] || {
  echo "usage: arm64_sysroot.sh FOLDER PACKAGE..." >&2
  exit 2
}
mkdir -p "$1"
folder=$(CDPATH='' cd -- "$1" && pwd -P)
shift

# The package list it was made from; made again when that changes.
stamp=$folder/.packages
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$*" ] || exit 0

books=$folder/.apt
mkdir -p "$books/lists/partial" "$books/archives/partial"
: >"$books/status"
apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$books" \
    -o Dir::State::status="$books/status" -o Dir::Cache="$books" -o Debug::NoLocking=1 "$@"
}
apt update
apt install -y --no-install-recommends --download-only "$@"

# Debian's packages still use /lib for /usr/lib.
for name in bin sbin lib; do
  mkdir -p "$folder/usr/$name"
  ln -sfn "usr/$name" "$folder/$name"
done
for package in "$books"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink --no-same-owner
done
# Links to /lib must point inside FOLDER.
find "$folder" -type l -lname '/*' | while IFS= read -r link; do
  ln -sfn "$folder$(readlink "$link")" "$link"
done
rm -rf "$books"
printf '%s\n' "$*" >"$stamp"
