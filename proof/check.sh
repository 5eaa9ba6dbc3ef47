#!/usr/bin/env bash
# Checks proof/lease.pml with SPIN: each configuration with all rules, and each rule taken out.
#
#   check.sh short   under 4 minutes on 2 cores
#   check.sh full    larger configurations as well, within 25 minutes and 12 GiB
#
# It fails unless every search with all rules ends without an error, and every rule that is taken
# out leads to a counterexample. It works in a temporary folder. TRAILS=folder keeps the
# counterexamples there, as "spin -t -p" prints them.
set -euo pipefail
cd "$(dirname "$0")"
mode=${1:-short}
case $mode in short | full) ;; *) echo "usage: $0 short|full" >&2; exit 1 ;; esac
for tool in spin cc; do
	command -v "$tool" >/dev/null || {
		echo "$tool is not installed, which the model checker needs: apt-get install spin gcc" >&2
		exit 1
	}
done
model=$PWD/lease.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$model" .
failed=0
[ "$mode" = short ] && memory=3000 limit=90 || memory=12000 limit=700

# The configurations, the macros of each, and how their searches look at the end states: where time
# passes when nobody can take a step, there must be none; elsewhere members that wait are no error.
declare -A config=(
	[lease]="-DLEASE -DROLES -DTOKENS=2 -DSESSIONS=2"
	[preempt]="-DPREEMPT -DROLES -DTOKENS=2 -DSESSIONS=2"
	[giving]="-DGIVING"
	[outage]="-DOUTAGE"
	[takeover]="-DTAKEOVER -DTOKENS=6 -DSESSIONS=4 -DLOSSES=1 -DBOUND=14"
	[commits]="-DCOMMITS -DWRITES=2 -DTOKENS=2 -DSESSIONS=2"
	[fork]="-DFORK -DWRITES=1 -DTOKENS=3 -DSESSIONS=2"
	[lease-3]="-DLEASE -DROLES -DTOKENS=3 -DSESSIONS=3"
)
order="lease preempt giving outage takeover commits fork"

build() { # build MACROS CFLAGS: makes ./pan
	local -a macros cflags
	read -ra macros <<<"$1"
	read -ra cflags <<<"$2"
	rm -f pan pan.* ./*.trail
	spin -a "${macros[@]}" lease.pml >spin.log 2>&1 || { cat spin.log; exit 1; }
	cc -DNOFAIR -DMEMLIM="$memory" "${cflags[@]}" -o pan pan.c
}

search() { # search NAME FLAGS...: runs ./pan, its output is in out
	local -a ends=(-E)
	case $1 in outage | takeover*) ends=() ;; esac
	shift
	local status=0
	timeout "$limit" ./pan -m2000000 "${ends[@]}" "$@" >out 2>&1 || status=$?
	[ "$status" = 0 ] || echo "pan: status $status" >>out
}

field() { sed -nE "s/$1/\\1/p" out | tail -1; }

holds() { # holds NAME: no error with all rules
	local how=exhausted start=$SECONDS
	build "${config[$1]}" "-O1 -DSAFETY -DCOLLAPSE"
	search "$1"
	if [ "$mode" = full ] && grep -qE "max search depth|out of memory|memory limit|status 124" out; then
		how=bit-state
		build "${config[$1]}" "-O1 -DSAFETY -DBITSTATE"
		search "$1" -w32
	fi
	if ! grep -q "errors: 0" out || grep -qE "not completed|too small|out of memory|pan: status" out; then
		how=FAILED
		failed=1
		grep -E "assertion|invalid end|error|status|completed" out || true
	fi
	printf '%-10s %10s states, depth %6s, %5s MiB, %3d s: %s\n' "$1" "$(field '^ *([0-9.e+]+) states, stored.*')" \
		"$(field '.*depth reached ([0-9]+).*')" "$(field '^ *([0-9]+)[.0-9]*.total actual memory usage')" "$((SECONDS - start))" "$how"
}

progresses() { # progresses NAME: no endless work between two ticks
	build "${config[$1]} -DZENO" "-O1 -DNP"
	search "$1" -l
	if grep -q "errors: 0" out && ! grep -qE "not completed|too small|out of memory|pan: status" out; then
		printf '%-10s time always goes on\n' "$1"
	else
		printf '%-10s FAILED: work without end, or no complete search\n' "$1"
		failed=1
	fi
}

breaks() { # breaks RULE NAME: a counterexample without the rule
	local shown
	build "${config[$2]} -DNO_$1" "-O0 -DSAFETY"
	search "$2"
	if ! grep -qE "^pan:[0-9]+: assertion violated +([(!]|0)" out || ! [ -e lease.pml.trail ]; then
		printf '%-9s %-10s NO COUNTEREXAMPLE\n' "$1" "$2"
		failed=1
		return
	fi
	if [ "$mode" = full ]; then search "$2" -i; fi # shorter ones
	shown=$(grep -oE "assertion violated .*" out | tail -1)
	case $shown in
	*"invalid array"*) printf '%-9s %-10s FAILED: %s\n' "$1" "$2" "$shown"; failed=1; return ;;
	*ended*) shown="S6, a lease that ended is valid again" ;;
	*taken*) shown="S1, two trust a lease" ;;
	*lack*) shown="V1, no valid lease in time" ;;
	*top*) shown="S2, a token is not greater" ;;
	*cur*) shown="S3, the fence is not the newest grant" ;;
	*log*) shown="a write is doubled, or was reported as not applied" ;;
	*"!(1)"*) shown="C5, an outage evicts" ;;
	*) shown="E1, the answer is wrong" ;;
	esac
	printf '%-9s %-10s %4d steps: %s\n' "$1" "$2" "$(wc -l <lease.pml.trail)" "$shown"
	if [ -n "${TRAILS:-}" ]; then
		# shellcheck disable=SC2086 # macros are several words
		spin -t -p -g -w ${config[$2]} "-DNO_$1" lease.pml >"$TRAILS/$1" 2>&1 || true
	fi
}

echo "All rules:"
for c in $order; do holds "$c"; done
progresses outage
progresses takeover
if [ "$mode" = full ]; then holds lease-3; fi

echo "One rule taken out:"
while read -r rule c; do
	breaks "$rule" "$c"
done <<'END'
M1 lease
M1GONE lease
M2 lease
M3 takeover
A1 giving
A2 lease
A3 giving
A5 giving
R1 giving
F1FENCE commits
F1NUMBER commits
E1 commits
I2 fork
C1 giving
C2 takeover
C3 lease
C4 takeover
C5 outage
C6 takeover
C7 lease
C8 lease
C10 lease
C11 preempt
S4 lease
S9 lease
S10 giving
S12 giving
MARGIN lease
END
cat <<'END'
Taken out without a counterexample, and why:
A1OWNER  (the owner has no record) a member claims only what it saw free, and a session that ended stays so (M3);
         the compare of the record, A1, does the rest. Other programs may claim otherwise.
A1SELF   (the claimer has a record) a record that names a session without one is free for the next claim.
A5TO     (the successor has a record) likewise.
Not in the model: M4, I1, A4, A6, R2, D1, E2, E3, E4, X1, P1, L2, L3, L4, O2, O3, C9, C12, C14, C15, C16, C17,
S11, S13, S14, V2 to V6, F2's choice of error: one shard, two members, and no damage, load, or operators.
END
[ "$failed" = 0 ] || { echo "FAILED"; exit 1; }
echo "passed after $SECONDS s"
