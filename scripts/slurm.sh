#!/bin/sh
# Starts and stops a real Slurm cluster of three nodes on the loopback interface, for tests: partition "normal", and
# "high", whose jobs preempt those of "normal" and have them queued again. Everything is below <dir>: configuration, munge
# key, sockets, logs and process ids. As root it installs missing Debian packages, and jobs of every user can run; as
# another user, only jobs of that user.
#
# usage: scripts/slurm.sh start <dir> [--accounting none] [--kill-wait <s>] [--min-job-age <s>]
#        scripts/slurm.sh stop <dir>
#        scripts/slurm.sh lose <dir> <node>      kill a node: its slurmd, and all processes of its jobs
#        scripts/slurm.sh orphan <dir> <node>    kill the slurmd of a node alone: its jobs go on, and slurmctld loses them
#        scripts/slurm.sh restart <dir>          end slurmctld, which saves its state, and start it again
#
# start prints the environment of clients. --kill-wait is the time between SIGTERM and SIGKILL, --min-job-age that after which
# slurmctld forgets a job that has ended.
set -eu
export PATH="$PATH:/usr/sbin:/sbin"

die() { echo "scripts/slurm.sh: $*" >&2; exit 1; }
usage() { echo "usage: scripts/slurm.sh start <dir> [--accounting none] [--kill-wait <s>] [--min-job-age <s>] | stop <dir> | lose <dir> <node> |" \
	"orphan <dir> <node> | restart <dir>" >&2; exit 2; }

# fail_of <daemon> <log> reports a daemon that does not work, and stops the others.
fail_of() {
	echo "scripts/slurm.sh: $1 failed; the end of its log:" >&2
	tail -n 15 "$2" >&2 || true
	stop
	exit 1
}

# missing_packages prints the packages that are not installed.
missing_packages() {
	for daemon in slurmctld slurmd munge; do
		case $daemon in munge) program=munged ;; *) program=$daemon ;; esac
		command -v "$program" >/dev/null || echo "$daemon"
	done
	command -v sbatch >/dev/null || echo slurm-client
}

# install_missing installs them, one script at a time: the tests of several packages start clusters at the same time.
install_missing() {
	missing=$(missing_packages)
	[ -n "$missing" ] || return 0
	# shellcheck disable=SC2086 # on one line
	[ "$(id -u)" -eq 0 ] || die "these packages are not installed: $(echo $missing)"
	command -v apt-get >/dev/null || die "Slurm is not installed, and there is no apt-get"
	exec 9<"$0"
	flock 9
	missing=$(missing_packages)
	# A package must not start its daemons; installing munge writes the system's key, which is not used here.
	# shellcheck disable=SC2086 # one word per package
	[ -z "$missing" ] || { apt-get update -q && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qy --no-install-recommends $missing; } \
		>"$dir/apt.log" 2>&1 || fail_of apt-get "$dir/apt.log"
	exec 9<&-
}

# free_ports prints the first of four successive TCP ports that nothing listens on, below those the kernel hands out.
free_ports() {
	base=$((20000 + ($$ * 7) % 11000))
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		taken=
		for port in $base $((base + 1)) $((base + 2)) $((base + 3)); do
			hex=$(printf '%04X' "$port")
			grep -qs ":$hex [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 && taken=yes
		done
		[ -n "$taken" ] || { echo "$base"; return; }
		base=$((base + 17))
	done
	die "no free ports"
}

# wait_for <seconds> <command>... runs a command until it succeeds.
wait_for() {
	tries=$(($1 * 20))
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.05
	done
}

start_munge() {
	mkdir -p "$dir/munge"
	dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2>/dev/null
	chmod 600 "$dir/munge/key"
	chmod 755 "$dir/munge"
	as=
	if [ "$(id -u)" -eq 0 ]; then
		chown -R munge: "$dir/munge"
		as="runuser -u munge --"
		$as test -r "$dir/munge/key" || die "the user munge cannot enter $dir: every directory above it needs mode a+x"
	fi
	# --force: the log and the key are below a directory that need not be root's.
	$as munged --force --num-threads=4 --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
		--log-file="$dir/munge/log" --seed-file="$dir/munge/seed" >>"$dir/munge.out" 2>&1 || fail_of munged "$dir/munge.out"
	wait_for 20 munge -S "$dir/munge/socket" -n || fail_of munged "$dir/munge/log"
}

write_conf() {
	host=$(hostname -s)
	cat >"$dir/slurm.conf" <<CONF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=10
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=$kill_wait
BatchStartTimeout=60
MinJobAge=$min_job_age
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 1)) CPUs=8 RealMemory=4096
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 2)) CPUs=8 RealMemory=4096
NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 3)) CPUs=8 RealMemory=4096
PartitionName=normal Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n[1-3] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
}

nodes_idle() { [ "$(sinfo --noheader --Node --partition=normal --states=idle --format=%N | wc -l)" -eq 3 ]; }

start() {
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	chmod 755 "$dir"
	[ ! -e "$dir/slurm.conf" ] || die "$dir holds a cluster already"
	install_missing
	user=$(id -un)
	base=$(free_ports)
	mkdir -p "$dir/state"
	start_munge
	write_conf
	export SLURM_CONF="$dir/slurm.conf"
	slurmctld -c >"$dir/slurmctld.out" 2>&1 || fail_of slurmctld "$dir/slurmctld.out"
	for node in n1 n2 n3; do
		mkdir -p "$dir/spool.$node"
		slurmd -N "$node" >"$dir/slurmd.$node.out" 2>&1 || fail_of "slurmd of $node" "$dir/slurmd.$node.out"
	done
	wait_for 30 scontrol ping || fail_of slurmctld "$dir/slurmctld.log"
	wait_for 30 nodes_idle || fail_of "a node" "$dir/slurmd.n1.log"
	echo "SLURM_CONF=$SLURM_CONF"
}

# daemons prints the ids of the daemons that run. An id in a file may belong to another process by now.
daemons() {
	for file in "$dir"/slurmctld.pid "$dir"/slurmd.n1.pid "$dir"/slurmd.n2.pid "$dir"/slurmd.n3.pid "$dir"/munge/pid; do
		pid=$(cat "$file" 2>/dev/null) && [ -n "$pid" ] || continue
		if grep -qsa -e slurm -e munged "/proc/$pid/cmdline"; then echo "$pid"; fi
	done
}

# stepds prints the ids of the processes that supervise jobs of this cluster. They outlive their slurmd.
stepds() {
	for proc in /proc/[0-9]*; do
		case $(cat "$proc/comm" 2>/dev/null) in
		slurmstepd) ;;
		*) continue ;;
		esac
		if grep -qsaF "SLURM_CONF=$dir/slurm.conf" "$proc/environ"; then echo "${proc#/proc/}"; fi
	done
}

none() { [ -z "$("$1")" ]; }
jobs_left() { timeout 5 squeue --noheader --format=%i || true; }

stop() {
	[ -e "$dir/slurm.conf" ] || [ -e "$dir/munge" ] || return 0
	export SLURM_CONF="$dir/slurm.conf"
	# Jobs first, while there is a slurmstepd that knows their processes.
	if [ -n "$(daemons)" ]; then
		for id in $(jobs_left); do
			timeout 5 scancel "$id" 2>/dev/null || true
			timeout 5 scancel --full --signal=KILL "$id" 2>/dev/null || true
		done
		wait_for 10 none jobs_left || echo "scripts/slurm.sh: jobs are left: $(jobs_left)" >&2
	fi
	# shellcheck disable=SC2046 # one word per process
	kill $(daemons) 2>/dev/null || true
	if ! wait_for 1 none daemons; then # slurmctld takes its time to save what is not needed any more
		# shellcheck disable=SC2046
		kill -9 $(daemons) $(stepds) 2>/dev/null || true
		wait_for 10 none daemons || die "these processes do not end: $(daemons)"
	fi
	rm -f "$dir/slurm.conf"
}

# below prints a process and all that descend from it.
below() {
	echo "$1"
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do below "$child"; done
}

# lose_node kills the slurmd of a node, and with "all" also the processes of its jobs. They are killed without a chance to
# report their end.
lose_node() {
	export SLURM_CONF="$dir/slurm.conf"
	pid=$(cat "$dir/slurmd.$1.pid") && grep -qsa slurmd "/proc/$pid/cmdline" || die "$1 has no slurmd"
	doomed=$pid
	if [ "$2" = all ]; then
		for id in $(timeout 5 squeue --noheader --nodelist="$1" --format=%i); do
			for stepd in $(stepds); do
				if grep -qsa "\[$id\." "/proc/$stepd/cmdline"; then doomed="$doomed $(below "$stepd")"; fi
			done
		done
		[ "$doomed" != "$pid" ] || die "$1 runs no job"
	fi
	# shellcheck disable=SC2086 # one word per process
	kill -9 $doomed 2>/dev/null || true # some end by the death of others
	wait_for 10 is_gone "$pid"
}

is_gone() { ! kill -0 "$1"; }

restart_controller() {
	export SLURM_CONF="$dir/slurm.conf"
	pid=$(cat "$dir/slurmctld.pid") && grep -qsa slurmctld "/proc/$pid/cmdline" || die "there is no slurmctld"
	kill "$pid" # killed at once, it would forget the jobs of the last seconds
	wait_for 30 is_gone "$pid" || die "slurmctld does not end"
	slurmctld >"$dir/slurmctld.out" 2>&1 || fail_of slurmctld "$dir/slurmctld.out"
	wait_for 30 scontrol ping || fail_of slurmctld "$dir/slurmctld.log"
}

[ $# -ge 2 ] || usage
command=$1 dir=$2 node= kill_wait=5 min_job_age=300
shift 2
case $command in
lose | orphan)
	[ $# -eq 1 ] || usage
	node=$1
	shift
	;;
esac
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
while [ $# -gt 0 ]; do
	case $1 in
	--accounting)
		[ "${2:-}" = none ] || die "--accounting: only none is known"
		shift 2
		;;
	--kill-wait)
		kill_wait=${2:?}
		shift 2
		;;
	--min-job-age)
		min_job_age=${2:?}
		shift 2
		;;
	*) usage ;;
	esac
done
case $command in
start) start ;;
stop) stop ;;
lose) lose_node "$node" all ;;
orphan) lose_node "$node" slurmd ;;
restart) restart_controller ;;
*) usage ;;
esac
