#!/usr/bin/env bash
# Proves the invariants of fence.smt2 and trust.smt2 by induction, with Z3 (Debian package z3): each
# holds in the first state, and no step leads from all of them to a state without it. Then it takes
# out each rule, and shows a run from the first state that breaks a property. Fails unless every
# answer is the one that the files name. docs/internals/proof.md explains it.
# Usage: induction.sh [FILE [RULE...]], for one file, and for these of its rules.
set -euo pipefail
cd "$(dirname "$0")"
z3=${Z3:-z3}
command -v "$z3" >/dev/null || { echo "induction.sh: no $z3: install the Debian package z3" >&2; exit 1; }
failed=0
declare -A control # the answer for a run with all rules in place

fail() {
	echo "FAIL: $*"
	failed=1
}

# ask: the answers to the questions on standard input, one a line. An error is not an answer.
ask() {
	local out
	out=$("$z3" -smt2 -in) || true
	if grep -q '(error' <<<"$out"; then
		grep -m 3 '(error' <<<"$out" >&2
		exit 1
	fi
	printf '%s\n' "$out"
}

# answers: the answers to the questions of induction, a pair a line.
answers() {
	ask | paste -d ' ' - -
}

# model FILE RULE: the file without the lines that stand for the rule; whole if it is "-".
model() {
	awk -v rule="; RULE $2" 'substr($0, length($0) - length(rule) + 1) != rule' "$1"
}

# names FILE KIND: the names of the file's invariants (inv) or steps (step), without the kind.
names() {
	sed -n "s/^(define-fun $2-\([^ ]*\) .*/\1/p" "$1"
}

# all FILE: the conjunction of the invariants.
all() {
	echo "(define-fun inv ((t Time)) Bool (and"
	names "$1" inv | sed 's/.*/  (inv-& t)/'
	echo "))"
}

# affected FILE RULE: the steps that name the rule; all if a definition that steps share names it.
affected() {
	local named
	named=$(awk -v rule="; RULE $2" '/^\((define-fun|assert) / { name = $1 == "(assert" ? "" : $2 }
		substr($0, length($0) - length(rule) + 1) == rule { print name }' "$1")
	if grep -qv '^step-' <<<"$named"; then
		names "$1" step
	else
		printf '%s\n' "${named//step-/}"
	fi
}

# induction FILE RULE EFFORT STEP...: a line "answer STEP INVARIANT" for each pair.
induction() {
	local file=$1 rule=$2 limit=$3 s i
	shift 3
	model "$file" "$rule"
	all "$file"
	echo "(set-option :rlimit $limit)" # not a time: the answers are the same on each machine
	echo "(declare-const now Time) (declare-const next Time) (assert (distinct now next))"
	for i in $(names "$file" inv); do
		echo "(push) (assert (init now)) (assert (not (inv-$i now))) (check-sat) (echo \"init $i\") (pop)"
	done
	for s in "$@"; do
		for i in $(names "$file" inv); do
			echo "(push) (assert (inv now)) (assert (step-$s now next)) (assert (not (inv-$i next)))"
			echo "(check-sat) (echo \"$s $i\") (pop)"
		done
	done
}

# grouped: lines "answer STEP INVARIANT" by answer and step.
grouped() {
	awk '{ k = $2 ": " $1; if (!(k in l)) { order[++n] = k; l[k] = "" } l[k] = l[k] " " $3 }
		END { for (i = 1; i <= n; i++) print "  " order[i] " " l[order[i]] }'
}

# run FILE RULE GOAL STEP...: the questions whether the steps are possible from the first state. GOAL
# is a property that then does not hold, or "-": all invariants hold in every state.
run() {
	local file=$1 rule=$2 goal=$3 n=0 s
	shift 3
	model "$file" "$rule"
	all "$file"
	echo "(set-option :rlimit 100000000)"
	echo "(declare-const t0 Time) (assert (init t0))"
	for s in "$@"; do
		echo "(declare-const t$((n + 1)) Time) (assert (step-$s t$n t$((n + 1))))"
		n=$((n + 1))
	done
	if [ "$goal" = - ]; then
		seq -f '(assert (inv t%g))' 0 "$n"
	else
		echo "(assert (not (inv-$goal t$n)))"
	fi
	echo "(assert (distinct $(seq -s ' ' -f 't%g' 0 "$n")))"
	echo "(check-sat)"
}

# show FILE STEP...: the questions for the actors of each step of a run.
show() {
	local file=$1 n=0 s a see=
	shift
	for s in "$@"; do
		echo "(echo \"@ $s\")"
		for a in $(awk -v s="(define-fun step-$s " 'index($0, s) == 1 { on = 1 } on && /^$/ { on = 0 } on' "$file" |
			grep -o '([A-Z][a-z]* now)' | tr -d '()' | cut -d ' ' -f 1 | sort -u); do
			case $a in
			G) echo "(get-value ((G t$n) (g-session (G t$n))))" ;;
			W) echo "(get-value ((W t$n) (w-grant (W t$n)) (w-number (W t$n)) (w-job (W t$n))))" ;;
			*) echo "(get-value (($a t$n)))" ;;
			esac
		done
		case $s in
		see) see=$n ;;
		claim | transfer) echo "(get-value ((grants t$((n + 1)))))" ;;
		tick) echo "(get-value ((ttl (P t0)) (clock t$((n + 1)) (P t0)) (clock t$((n + 1)) (P t${see:-0}))))" ;;
		esac
		n=$((n + 1))
	done
	if grep -q 'define-fun trusts' "$file"; then
		echo '(echo "@ trusted")'
		echo "(get-value ((trusts t$n 1) (trusts t$n 2) (trusts t$n 3)))"
	fi
}

# readable: the answers to these, a step a line.
readable() {
	tr '\n' ' ' | sed 's/@ /\n/g; s/!val!/-/g' | sed '/^ *$/d' | sed -E '
		s/\(\/ ([0-9]+)\.0 ([0-9]+)\.0\)/\1\/\2/g; s/ ([0-9]+)\.0\)/ \1)/g; s/\(- ([0-9/]+)\)/-\1/g
		s/\(g-session \(G t[0-9]+\)\)/of/g; s/\(w-(grant|number|job) \(W t[0-9]+\)\)/\1/g
		s/\(grants t[0-9]+\)/makes grant/g; s/\(trusts t[0-9]+ ([0-9])\)/grant \1/g
		s/\(clock t[0-9]+ \(P t0\)\)/clock of the first/g; s/\(clock t[0-9]+ \(P t[0-9]+\)\)/of the observer/g
		s/\(ttl \(P t0\)\)/TTL/g; s/\(([A-Z][a-z]*) t[0-9]+\)/\1/g; s/ +/ /g
		s/\(?\(([A-Za-z0-9 -]+) ([^ ()]+)\)\)?/\1=\2/g
		/Preempt=false/ s/ G=[^ ]* of=[^ ]*//
		s/ Preempt=false//' | nl -w 5 -s '  '
}

files=("${1:-overlap.smt2}")
[ $# -gt 0 ] || files+=(fence.smt2 trust.smt2)
only=" ${*:2} "
for file in "${files[@]}"; do
	if [ "$file" = overlap.smt2 ]; then
		echo "$file: do two processes trust at once?"
		lemma=$(ask <"$file" | paste -d ' ' - -)
		printf '  %s\n' "${lemma//$'\n'/$'\n'  }"
		[ "$(awk '{ print $NF }' <<<"$lemma" | paste -sd ' ')" = "unsat unsat sat" ] || fail "$file: not unsat, unsat, sat"
		continue
	fi
	echo
	echo "$file: can a step lead from all invariants to a state without this one?"
	mapfile -t steps < <(names "$file" step)
	pairs=$(((${#steps[@]} + 1) * $(names "$file" inv | wc -l)))
	answers=$(induction "$file" - 10000000 "${steps[@]}" | answers)
	grouped <<<"$answers"
	proved=$(grep -c '^unsat ' <<<"$answers" || true)
	echo "  $proved of $pairs are unsat"
	[ "$proved" = "$pairs" ] || fail "$file is not inductive"
	while read -r _ _ values; do
		change=$(tr ' ' '\n' <<<"$values" | sed -E 's/(.*)=(.*)/s|^(\\(define-fun \1 .*) [^ ]*$|\\1 \2)|/')
		proved=$(induction "$file" - 10000000 "${steps[@]}" | sed -E "$change" | answers | grep -c '^unsat ' || true)
		echo "  with $values: $proved of $pairs are unsat"
		[ "$proved" = "$pairs" ] || fail "$file is not inductive with $values"
	done < <(grep '^;; also ' "$file")

	echo "$file: runs from the first state, all invariants in each state"
	covered=
	while read -r -a way; do
		way=("${way[@]:2}")
		answer=$(run "$file" - - "${way[@]}" | ask)
		echo "  $answer: ${way[*]}"
		[ "$answer" = sat ] || fail "$file: this must be possible"
		covered="$covered ${way[*]}"
	done < <(grep '^;; can ' "$file")
	for s in "${steps[@]}"; do
		[[ " $covered " == *" $s "* ]] || fail "$file: no run has the step $s"
	done

	while read -r rule; do
		[[ $only =~ ^\ *$ || $only == *" $rule "* ]] || continue
		echo "$file without $rule:"
		spare=0
		grep -q "^;; spare $rule\$" "$file" && spare=1
		mapfile -t steps < <(affected "$file" "$rule")
		answers=$(induction "$file" "$rule" $((spare ? 10000000 : 300000)) "${steps[@]}" | answers | { grep -v '^unsat ' || true; })
		if [ "$spare" = 1 ]; then
			[ -z "$answers" ] || fail "$file needs $rule"
			echo "  all of it holds: the induction does not need this rule"
			continue
		fi
		grouped <<<"$answers"
		[ -n "$answers" ] || fail "$file does not need $rule"
		grep -q "^;; without $rule " "$file" || fail "$file has no run without $rule"
		while read -r -a way; do
			goal=${way[3]}
			way=("${way[@]:4}")
			key="$file $goal ${way[*]}"
			[ -n "${control[$key]:-}" ] || control[$key]=$(run "$file" - "$goal" "${way[@]}" | ask)
			[ "${control[$key]}" = unsat ] || fail "$file: the run breaks $goal with $rule as well"
			out=$({
				run "$file" "$rule" "$goal" "${way[@]}" | sed '$d'
				sed -n 's/^;; example //p' "$file"
				echo "(check-sat)"
				show "$file" "${way[@]}"
			} | { "$z3" -smt2 -in || true; })
			if [ "$(head -n 1 <<<"$out")" = sat ]; then
				echo "  a run breaks $goal:"
				tail -n +2 <<<"$out" | readable
			else
				fail "$file without $rule: no run breaks $goal: $(head -n 1 <<<"$out")"
			fi
		done < <(grep "^;; without $rule " "$file")
	done < <(sed -n 's/.*; RULE \([^ ]*\)$/\1/p' "$file" | awk '!seen[$0]++')
done
[ "$failed" = 0 ] && echo && echo "All answers are as expected."
exit "$failed"
