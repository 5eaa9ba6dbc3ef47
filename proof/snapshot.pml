/*
 * Snapshots of one shard, written by the holder of its lease (package follower, rule T7), for the
 * model checker SPIN. check.sh runs it. A Write stores a part beside the current one, then names it
 * in the manifest and trims the log in one commit, then removes the former part. The caller may stop
 * waiting at any commit and call Write again: that commit may still take effect, until the next one
 * of the lease does (F1). Or the process ends, and another Write comes later, perhaps never.
 *
 * T7: the log is trimmed only behind a snapshot that is stored. BUG_SNAPSHOT: a manifest replaces
 * one that was not read.
 */

#define PARTS 4 /* snapshots ever begun */
#define CALLS 6 /* calls of Write */

#ifdef TELL
#define say(...) printf(__VA_ARGS__);
#else
#define say(...)
#endif
#ifdef BUG_SNAPSHOT
#define READ(v) true
#else
#define READ(v) (v == version)
#endif

/* The store. A part is named by its number, which grows with the entry that it is of. */
byte current, next, gone;  /* the manifest */
byte version;              /* and its version */
bool whole[PARTS + 1];     /* the part is stored */
byte trim;                 /* the log is trimmed behind this part's entry */

/* A commit that nobody waits for: 1 a manifest, 2 a part, 3 the removal of a part. */
byte kind, fc, fn, fg, fv, ft, fp;

byte calls, parts;

inline t7() { assert(trim == 0 || (current >= trim && whole[current])) }

inline manifest(c, n, g, v, t) { /* the store takes a commit of the manifest */
	if
	:: READ(v) ->
		say("@+ the manifest names part %d; next %d, to be removed %d\n", c, n, g)
		current = c; next = n; gone = g; version++;
		if
		:: t > trim -> trim = t; say("@+ the log is trimmed behind part %d\n", t)
		:: else
		fi;
		done = true
	:: else -> say("@+ refused: the manifest was not the one that was read\n") done = false
	fi
}

inline take(k, c, n, g, v, t, p) {
	if
	:: k == 1 -> manifest(c, n, g, v, t)
	:: k == 2 -> whole[p] = true; say("@+ part %d is stored\n", p) done = true
	:: k == 3 -> whole[p] = false; say("@+ part %d is removed\n", p) done = true
	fi;
	t7()
}

/* A commit: one in flight takes effect before it or never. Then it does, or the caller stops waiting. */
inline commit(k, c, n, g, v, t, p) {
	if
	:: kind != 0 -> say("@a 1 old the former commit arrives late\n")
		take(kind, fc, fn, fg, fv, ft, fp)
	:: true
	fi;
	kind = 0; fc = 0; fn = 0; fg = 0; fv = 0; ft = 0; fp = 0;
	if
	:: say("@a 1 c the commit arrives\n") take(k, c, n, g, v, t, p); stopped = !done
	:: kind = k; fc = c; fn = n; fg = g; fv = v; ft = t; fp = p; stopped = true;
		say("@k 1 c old\n") say("@e 1 the caller waits no longer for the commit\n")
	fi
}

active proctype Writer() {
	byte rc, rn, rg, rv, rp;
	bool done, stopped;
	do
	:: atomic { calls < CALLS -> calls++; say("@e 1 Write is called\n")
		rc = current; rn = next; rg = gone; rv = version; stopped = false; rp = 0;
		say("@e 1 it reads the manifest: part %d; next %d, to be removed %d\n", rc, rn, rg) }
		/* What an earlier Write left. */
		if
		:: atomic { rn != 0 -> say("@s 1 c a commit: part %d is to be removed\n", rn) commit(1, rc, 0, rn, rv, 0, 0); rg = rn; rn = 0; rv = rv + 1 }
		:: atomic { else }
		fi;
		if
		:: atomic { !stopped && rg != 0 -> say("@s 1 c a commit removes part %d\n", rg) commit(3, 0, 0, 0, 0, 0, rg) }
		:: atomic { else }
		fi;
		if
		:: atomic { !stopped && rg != 0 -> say("@s 1 c a commit: part %d is removed\n", rg) commit(1, rc, 0, 0, rv, 0, 0); rg = 0; rv = rv + 1 }
		:: atomic { else }
		fi;
		/* The snapshot, beside the current one. */
		if
		:: atomic { !stopped && parts < PARTS -> parts++; rp = parts; say("@s 1 c a commit: part %d is the next one\n", rp) commit(1, rc, rp, 0, rv, 0, 0); rv = rv + 1 }
		:: atomic { else -> stopped = true }
		fi;
		if
		:: atomic { !stopped -> say("@s 1 c a commit stores part %d\n", rp) commit(2, 0, 0, 0, 0, 0, rp) }
		:: atomic { else }
		fi;
		if
		:: atomic { !stopped -> say("@s 1 c a commit: part %d is the current one, and the log is trimmed\n", rp) commit(1, rp, 0, rc, rv, rp, 0); rv = rv + 1 }
		:: atomic { else }
		fi;
		if
		:: atomic { !stopped && rc != 0 -> say("@s 1 c a commit removes part %d\n", rc) commit(3, 0, 0, 0, 0, 0, rc) }
		:: atomic { else }
		fi;
		if
		:: atomic { !stopped && rc != 0 -> say("@s 1 c a commit: part %d is removed\n", rc) commit(1, rp, 0, 0, rv, 0, 0) }
		:: atomic { else }
		fi;
		atomic { rc = 0; rn = 0; rg = 0; rv = 0; rp = 0; done = false; stopped = false }
	:: atomic { kind != 0 -> say("@a 1 old the former commit arrives late\n") take(kind, fc, fn, fg, fv, ft, fp);
		kind = 0; fc = 0; fn = 0; fg = 0; fv = 0; ft = 0; fp = 0 }
	od
}
