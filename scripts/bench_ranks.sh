#!/bin/sh
# bench_ranks.sh PROGRAM [--quick]: every measurement of docs/scale.md with PROGRAM, bench/parallel. On an idle machine;
# --quick: shorter sequences, one round, to see that it runs. The last part needs root (throttled_ranks.sh).
set -eu
program=$1
tokens=16384 memory_tokens=4096 rounds=5
[ "${2:-}" != --quick ] || { tokens=2048 memory_tokens=2048 rounds=1; }
scripts=$(dirname "$0")
echo "== speed: 2 ranks of this machine"
"$scripts/ranks.sh" 2 "$program" speed --tokens $tokens --rounds $rounds
echo "== memory and bytes: up to 8 ranks of this machine"
"$scripts/ranks.sh" 8 "$program" memory --tokens $memory_tokens
if [ "$(id -u)" != 0 ]; then
  echo "== overlap: skipped, network namespaces need root"
  exit 0
fi
for rate in none 1gbit 200mbit; do
  echo "== overlap: 2 ranks in network namespaces, link: $rate"
  "$scripts/throttled_ranks.sh" $rate "$program" speed --tokens $tokens --rounds $rounds
done
