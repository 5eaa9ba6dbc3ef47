#!/usr/bin/env bash
# Checks proof/lease.pml and proof/snapshot.pml with SPIN: each configuration with all rules, and
# each rule taken out.
#
#   check.sh short      under 4 minutes on 2 cores
#   check.sh full       larger configurations and the shortest counterexamples as well, within 25
#                       minutes and 12 GiB; their pictures must be those of docs/internals/proof
#   check.sh pictures   writes docs/internals/proof: a picture of each shortest counterexample
#
# It fails unless every search with all rules ends without an error, and every rule that is taken
# out leads to a counterexample. It works in a temporary folder, two searches at a time. TRAILS=folder
# keeps the counterexamples there, as text.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"
mode=${1:-short}
case $mode in short | full | pictures) ;; *) echo "usage: $0 short|full|pictures" >&2; exit 1 ;; esac
for tool in spin cc; do
	command -v "$tool" >/dev/null || {
		echo "$tool is not installed, which the model checker needs: apt-get install spin gcc" >&2
		exit 1
	}
done
proof=$PWD
page=$proof/../docs/internals/proof.md
[ "$mode" = short ] && limit=${limit:-90} || limit=${limit:-700}
memory=${memory:-5500}

# The configurations, the macros of each, and how their searches look at the end states: where time
# passes when nobody can take a step, there must be none; elsewhere members that wait are no error.
declare -A config=(
	[lease]="-DLEASE -DROLES -DTOKENS=2 -DSESSIONS=2"
	[preempt]="-DPREEMPT -DROLES -DTOKENS=2 -DSESSIONS=2"
	[giving]="-DGIVING"
	[locks]="-DGIVING -DLOCKS"
	[outage]="-DOUTAGE"
	[takeover]="-DTAKEOVER -DTOKENS=6 -DSESSIONS=4 -DLOSSES=1 -DBOUND=14"
	[lossless]="-DTAKEOVER -DTOKENS=6 -DSESSIONS=4 -DLOSSES=0 -DBOUND=14"       # takeover, and no message is lost,
	[deaf]="-DTAKEOVER -DTOKENS=6 -DSESSIONS=4 -DLOSSES=0 -DBOUND=14 -DALIVE" # and nobody dies
	[eventual]="-DTAKEOVER -DEVENTUALLY -DTOKENS=3 -DSESSIONS=4 -DINTACT" # no message is lost but in outages,
	[lossy]="-DTAKEOVER -DEVENTUALLY -DTOKENS=3 -DSESSIONS=4 -DSTEADY"     # and there are no outages
	[commits]="-DCOMMITS -DWRITES=2 -DTOKENS=2 -DSESSIONS=2"
	[callers]="-DCOMMITS -DCALLERS -DWRITES=2 -DTOKENS=1 -DSESSIONS=1"
	[lock-log]="-DCOMMITS -DLOCKS -DWRITES=1 -DTOKENS=2 -DSESSIONS=2"
	[fork]="-DFORK -DWRITES=1 -DTOKENS=3 -DSESSIONS=2"
	[replica]="-DFORK -DREPLICA -DWRITES=1 -DTOKENS=2 -DSESSIONS=2"
	[snapshot]=""
	[lease-3]="-DLEASE -DROLES -DTOKENS=3 -DSESSIONS=3"
)

build() { # build NAME MACROS CFLAGS: makes ./pan
	local -a macros cflags
	local file=lease.pml
	if [ "$1" = snapshot ]; then file=snapshot.pml; fi
	cp "$proof/$file" model.pml
	read -ra macros <<<"${config[$1]} $2"
	read -ra cflags <<<"$3"
	rm -f pan pan.* ./*.trail
	spin -a "${macros[@]}" model.pml >spin.log 2>&1 || { cat spin.log; exit 1; }
	cc -DNOFAIR -DMEMLIM="$memory" "${cflags[@]}" -o pan pan.c
}

search() { # search NAME FLAGS...: runs ./pan, its output is in out
	local -a ends=(-E)
	case $1 in outage | takeover | lossless | deaf | eventual | lossy) ends=() ;; esac
	shift
	local status=0
	timeout "$limit" ./pan -m4000000 "${ends[@]}" "$@" >out 2>&1 || status=$?
	[ "$status" = 0 ] || echo "pan: status $status" >>out
}

field() { sed -nE "s/$1/\\1/p" out | tail -1; }

complete() { grep -q "errors: 0" out && ! grep -qE "not completed|too small|out of memory|pan: status" out; }

figures() { # figures NAME SECONDS WORDS
	printf '%-10s %10s states, depth %6s, %5s MiB, %3d s: %s\n' "$1" "$(field '^ *([0-9.e+]+) states, stored.*')" \
		"$(field '.*depth reached ([0-9]+).*')" "$(field '^ *([0-9]+)[.0-9]*.total actual memory usage')" "$2" "$3"
}

holds() { # holds NAME: no error with all rules
	local how=exhausted start=$SECONDS
	build "$1" "" "-O1 -DSAFETY -DCOLLAPSE"
	search "$1"
	if [ "$mode" = full ] && grep -qE "max search depth|out of memory|memory limit|status 124" out; then
		how=bit-state
		build "$1" "" "-O1 -DSAFETY -DBITSTATE"
		search "$1" -w32
	fi
	complete || how=FAILED
	[ "$how" != FAILED ] || grep -E "assertion|invalid end|error|status|completed" out || true
	figures "$1" $((SECONDS - start)) "$how"
}

progresses() { # progresses NAME: no endless work between two ticks
	build "$1" -DZENO "-O1 -DNP"
	search "$1" -l
	complete && printf '%-10s time always goes on\n' "$1" || printf '%-10s FAILED: work without end, or no complete search\n' "$1"
}

ends() { # ends NAME RULE [MINUTES]: no run without end in which no lease is valid, and one without the rule.
	# With MINUTES it looks at as many states as it can until then, by bit-state.
	local start=$SECONDS words=FAILED
	if [ -z "${3:-}" ]; then
		build "$1" "" "-O1 -DCOLLAPSE"
		search "$1" -a
		if complete; then words="in every run without end a lease is valid"; fi
	else
		build "$1" "" "-O1 -DBITSTATE"
		search "$1" -a -w34 "-Q$3"
		if grep -q "errors: 0" out && ! grep -q "pan: status" out; then
			words="in these states, not all, no run without end and without a lease"
		fi
	fi
	figures "$1" $((SECONDS - start)) "$words"
	build "$1" "-DNO_$2" "-O1 -DCOLLAPSE"
	search "$1" -a
	if grep -q "acceptance cycle" out; then
		printf '%-10s without %s: a run without end and without a lease\n' "$1" "$2"
	else
		printf '%-10s FAILED: no such run without %s\n' "$1" "$2"
	fi
}

title() { # title RULE: of its picture, from its row of the page
	local row
	row=$(sed -nE "s#^\| \[([^]]*)\]\(proof/$1\.svg\) \| ([^|]*) \|.*#\1: \2#p" "$page")
	case $1 in [A-Z]*) row="Without $row" ;; esac
	echo "$row"
}

breaks() { # breaks RULE NAME [MACRO...]: a counterexample without the rule, or with the fault
	local rule=$1 name=$2 macros shown
	shift 2
	macros="-DNO_$rule $*"
	case $rule in [a-z]*) macros="-DBUG_$(tr a-z A-Z <<<"$rule") $*" ;; esac
	if [ "$mode" = short ]; then
		build "$name" "$macros" "-O0 -DSAFETY"
	else
		build "$name" "$macros -DTELL" "-O1 -DSAFETY -DBFS" # breadth first: none is shorter
	fi
	search "$name"
	if ! grep -qE "^pan:[0-9]+: assertion violated +([(!]|0)" out || ! [ -e model.pml.trail ]; then
		printf '%-9s %-10s FAILED: NO COUNTEREXAMPLE\n' "$rule" "$name"
		return
	fi
	shown=$(grep -oE "assertion violated .*" out | tail -1)
	case $shown in
	*"invalid array"*) printf '%-9s %-10s FAILED: %s\n' "$rule" "$name" "$shown"; return ;;
	*ended*) shown="S6, a lease that ended is valid again" ;;
	*taken*) shown="S1, two trust a lease" ;;
	*lack*) shown="V1, no valid lease for more than 14 ticks" ;;
	*"token>top"*) shown="S2, a token is not greater" ;;
	*"==cur"* | *"==top"*) shown="S3, the fence is not the newest grant" ;;
	*told*"head>=shown"* | *"head>=shown"*) shown="I2, what a read or an answer showed is taken back" ;;
	*"head==0"*) shown="R2, an acknowledged write is lost" ;;
	*"log[1]!="*) shown="F1, a write is doubled" ;;
	*"!=M[m].wid"*) shown="E1, the write was applied" ;;
	*"==M[m].wid"*) shown="E1, the write was not made" ;;
	*trim*) shown="T7, the log is trimmed, and no snapshot is stored" ;;
	*"!(1)"*) shown="C5, an outage evicts" ;;
	*" 0"*) shown="E1, the answer is wrong" ;;
	*) printf '%-9s %-10s FAILED: %s\n' "$rule" "$name" "$shown"; return ;;
	esac
	if [ "$mode" = short ]; then
		printf '%-9s %-10s %4d steps: %s\n' "$rule" "$name" "$(wc -l <model.pml.trail)" "$shown"
		grep -qF "<title>$(title "$rule")</title>" "$proof/../docs/internals/proof/$rule.svg" ||
			printf '%-9s FAILED: docs/internals/proof/%s.svg has another title than its row of docs/internals/proof.md: make proof-pictures\n' "$rule" "$rule"
		return
	fi
	# shellcheck disable=SC2086 # macros are several words
	spin -t -T ${config[$name]} $macros -DTELL model.pml >told 2>&1 || true
	printf '%-9s %-10s %9s states, %3d events: %s\n' "$rule" "$name" "$(field '^ *([0-9.e+]+) states, stored.*')" \
		"$(grep -c '^@[iesartx]' told)" "$shown"
	if [ -n "${TRAILS:-}" ]; then grep '^@' told >"$TRAILS/$rule"; fi
	awk -v title="$(title "$rule")" -v last="$shown" -f "$proof/picture.awk" told >"../pictures/$rule.svg"
}

if [ $# -gt 1 ]; then # a job: a folder, a function, and its arguments
	cd "$2"
	"${@:3}"
	exit
fi


work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/pictures"

failed=0
# jobs: each line is a function and its arguments. Two run at a time; what they say comes in order.
jobs() {
	local n=0 line
	rm -rf "$work"/[0-9]*
	while read -r line; do
		n=$((n + 1))
		mkdir "$work/$n"
		echo "$n $line"
	done >"$work/list"
	xargs -P 2 -I '{}' bash -c 'set -- {}; "$0" "$mode" "$work/$1" "${@:2}" >"$work/$1/said" 2>&1 || echo FAILED: "$@" >>"$work/$1/said"
		rm -f "$work/$1"/pan* "$work/$1"/*.trail' "$proof/check.sh" <"$work/list"
	for ((line = 1; line <= n; line++)); do cat "$work/$line/said"; done | tee "$work/said"
	if grep -q FAILED "$work/said"; then failed=1; fi
}
export mode work

if [ "$mode" != pictures ]; then
	echo "All rules:"
	jobs <<-'END'
		holds commits
		holds fork
		holds preempt
		holds lease
		holds takeover
		holds giving
		holds locks
		holds outage
		holds callers
		holds replica
		holds lock-log
		holds snapshot
		progresses outage
		progresses takeover
		ends eventual C6
	END
	if [ "$mode" = full ]; then
		export memory=9500
		jobs <<-'END'
			holds lease-3
			ends lossy C4 8
		END
		unset memory
	fi
fi

echo "One rule taken out:"
jobs <<'END'
breaks M1 lease
breaks M1GONE lease
breaks M2 lease
breaks M3 lossless
breaks A1 giving
breaks A2 giving
breaks A3 giving
breaks A5 giving
breaks R1 giving
breaks R2HELD locks
breaks R2LOG lock-log
breaks F1FENCE commits
breaks F1NUMBER commits
breaks E1 commits
breaks S15 commits
breaks I2 fork
breaks C1 giving -DMASK_S6
breaks C2 takeover
breaks C3 lease
breaks C4 takeover
breaks C5 outage
breaks C6 deaf
breaks C7 lease
breaks C8 lease
breaks C10 lease
breaks C11 preempt
breaks C14 lease
breaks S4 lease -DMASK_S6
breaks S9 lease -DMASK_S6
breaks S10 giving -DMASK_S6
breaks S12 giving
breaks MARGIN lease
END
echo "A fault put in that was found in the code:"
jobs <<'END'
breaks snapshot snapshot
breaks cutoff lease
breaks fence fork
breaks read replica
breaks update callers
END
case $mode in
pictures)
	mkdir -p ../docs/internals/proof
	rm -f ../docs/internals/proof/*.svg
	cp "$work"/pictures/*.svg ../docs/internals/proof
	;;
full)
	diff -r "$work/pictures" ../docs/internals/proof >"$work/said" || {
		echo "FAILED: the pictures in docs/internals/proof are others: make proof-pictures"
		grep -E '^(Only|diff)' "$work/said"
		failed=1
	}
	;;
esac
cat <<'END'
Taken out without a counterexample, and why:
A1OWNER  (the owner has no record) a member claims only what it saw free, and a session that ended stays so (M3);
         the compare of the record, A1, does the rest. Other programs may claim otherwise.
A1SELF   (the claimer has a record) a record that names a session without one is free for the next claim.
A5TO     (the successor has a record) likewise.
Not in the model: M4, I1, A4, A6, D1, E2, E3, E4, X1, P1, L2, L3, L4, O2, O3, C9, C12, C15, C16, C17,
S11, S13, S14, V2 to V6, F2's choice of error: one shard, two members, and no damage, load, or operators.
END
[ "$failed" = 0 ] || { echo "FAILED"; exit 1; }
echo "passed after $SECONDS s"
