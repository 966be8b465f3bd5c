#!/bin/sh
# ranks.sh N COMMAND ...: runs a command on N ranks of this machine, with Open MPI. More ranks than cores share them; as
# root, which containers are, Open MPI has to be told twice.
set -eu
ranks=$1
shift
if [ "$(id -u)" = 0 ]; then
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
# Ranks are not bound to cores: a rank's own threads divide them. No banner of Open MPI's own.
exec mpirun --quiet --oversubscribe --bind-to none -n "$ranks" "$@"
