#!/bin/sh
# throttled_ranks.sh RATE COMMAND ...: runs a command on two ranks of Open MPI, each in a network namespace of its own,
# connected by a link of RATE (tc's form: 200mbit, 1gbit; "none": as fast as it goes). Needs root, iproute2 and a kernel
# with veth and tbf. The ranks exchange their messages by TCP over that link, and nothing else.
set -eu
[ $# -ge 2 ] || { echo "usage: throttled_ranks.sh RATE COMMAND ..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "throttled_ranks.sh: network namespaces need root, this is user $(id -un)" >&2; exit 2; }
rate=$1
shift
one=phasor-one-$$ two=phasor-two-$$
folder=$(mktemp -d)
clean() {
  ip netns del "$one" 2>/dev/null || :
  ip netns del "$two" 2>/dev/null || :
  rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM
ip netns add "$one"
ip netns add "$two"
ip link add one netns "$one" type veth peer name two netns "$two"
for side in one two; do
  name=phasor-$side-$$
  [ $side = one ] && address=10.213.0.1 || address=10.213.0.2
  ip -n "$name" addr add $address/24 dev $side
  ip -n "$name" link set lo up
  ip -n "$name" link set $side up
  [ "$rate" = none ] || tc -n "$name" qdisc add dev $side root tbf rate "$rate" burst 256kb latency 100ms
done
# Open MPI starts the second rank's daemon by "AGENT HOST COMMAND". A host name of its own: ranks of one host would share
# memory instead of using the link.
cat >"$folder/agent" <<END
#!/bin/sh
shift
exec ip netns exec $two unshare --uts sh -c 'hostname phasor-two; eval "\$*"' sh "\$@"
END
chmod +x "$folder/agent"
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
# Not exec: the namespaces are removed afterwards.
ip netns exec "$one" mpirun --quiet -n 2 --host 10.213.0.1,10.213.0.2 --bind-to none \
  --mca plm_rsh_agent "$folder/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.213.0.0/24 \
  --mca oob_tcp_if_include 10.213.0.0/24 "$@"
