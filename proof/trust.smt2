; Trust by induction: S1, with clocks that run at different rates.
;
; This file is plain SMT-LIB 2. proof/induction.sh adds the questions, as for fence.smt2, which
; shows that tokens are unique: so a grant is named by its place in the store's order here, and
; a shard's record by the grant that it names.
;
; Processes may be stopped between any two steps, for any time, while their clocks run on.
; Requests and answers may be delayed, repeated, reordered and lost.
;
; A line that ends with "; RULE x" stands for rule x. The script takes each out in turn.

(declare-sort Time 0)      ; names of states: a function of a Time is part of the state
(declare-sort Session 0)   ; one process under one session (C3, S10)
(declare-sort Shard 0)

; --- The store ---
(declare-fun member  (Time Session) Bool)  ; the session has a record
(declare-fun used    (Time Session) Bool)  ; the session has had a record
(declare-fun version (Time Session) Int)   ; the version of its record
(declare-fun record  (Time Shard) Int)     ; the grant that the shard's record names; 0 if it is free
(declare-fun grants  (Time) Int)           ; grants so far, in the store's order

; --- The processes ---
(declare-fun clock   (Time Session) Real)  ; what the process's own clock shows
(declare-fun dead    (Time Session) Bool)  ; the process has ended
(declare-fun until   (Time Session) Real)  ; it trusts its leases until then, by its own clock
(declare-fun beat    (Time Session Real) Bool) ; it sent a join or heartbeat at that instant of its clock
(declare-fun holds   (Time Int) Bool)      ; the session of grant i uses grant i, as long as it trusts
(declare-fun gave    (Time Int) Bool)      ; it has sent a release or transfer of grant i
(declare-fun closing (Time Session) Bool)  ; it has sent the close of its session
(declare-fun saw     (Time Session Session) Int)  ; the version of another's record that it saw last,
(declare-fun saw-at  (Time Session Session) Real) ;   and when, by its own clock
(declare-fun suspect (Time Session Session Int) Bool) ; it has sent an eviction that names that version

; --- History: what happened. Properties and honest answers are stated with it ---
(declare-fun done    (Time Session Real) Bool) ; the store applied the join or heartbeat of that instant
(declare-fun fresh   (Time Session) Real)      ; the newest instant of these
(declare-fun preempted (Time Int) Bool)        ; another program took the shard from grant i (C11)

; --- What never changes ---
(declare-fun g-shard   (Int) Shard)
(declare-fun g-session (Int) Session)
(declare-fun ttl       (Session) Real)
(declare-fun margin    (Session) Real)
(assert (forall ((s Session)) (and (< 0.0 (ttl s)) (<= 0.0 (margin s)) (< (margin s) (ttl s)))))
; While one clock runs 9, no other runs more than 10. The margin covers that: it is at least a tenth
; of the TTL. The script asks for other shares as well, and overlap.smt2 has the lemma for all.
(define-fun slow () Real 9.0)
(define-fun fast () Real 10.0)
(assert (forall ((s Session)) (<= (* (- fast slow) (ttl s)) (* fast (margin s))))) ; RULE margin
;; also slow=499.0 fast=500.0
;; also slow=2.0 fast=3.0

; --- The actors of the step that leaves a state ---
(declare-fun P (Time) Session)             ; acts
(declare-fun Q (Time) Session)             ; is acted on
(declare-fun H (Time) Shard)
(declare-fun G (Time) Int)                 ; a grant
(declare-fun V (Time) Int)                 ; a version
(declare-fun X (Time) Real)                ; an instant of P's clock
(declare-fun Preempt (Time) Bool)

(define-fun rmax ((a Real) (b Real)) Real (ite (> a b) a b))
(define-fun window ((s Session)) Real (- (ttl s) (margin s)))
(define-fun granted ((t Time) (i Int)) Bool (and (<= 1 i) (<= i (grants t))))
(define-fun trusts ((t Time) (i Int)) Bool
  (let ((s (g-session i)))
  (and (holds t i) (not (dead t s))
       (< (clock t s) (until t s))))) ; S9: by the clock, whether or not the process could revoke it

; --- What a step leaves as it is ---
(define-fun same-clocks ((now Time) (next Time)) Bool (forall ((s Session)) (= (clock next s) (clock now s))))
(define-fun same-dead ((now Time) (next Time)) Bool (forall ((s Session)) (= (dead next s) (dead now s))))
(define-fun same-until ((now Time) (next Time)) Bool (forall ((s Session)) (= (until next s) (until now s))))
(define-fun same-closing ((now Time) (next Time)) Bool (forall ((s Session)) (= (closing next s) (closing now s))))
(define-fun same-members ((now Time) (next Time)) Bool
  (forall ((s Session)) (and (= (member next s) (member now s)) (= (used next s) (used now s)))))
(define-fun same-beats ((now Time) (next Time)) Bool
  (and (forall ((s Session)) (and (= (version next s) (version now s)) (= (fresh next s) (fresh now s))))
       (forall ((s Session) (x Real)) (= (done next s x) (done now s x)))))
(define-fun same-sent ((now Time) (next Time)) Bool
  (forall ((s Session) (x Real)) (= (beat next s x) (beat now s x))))
(define-fun same-views ((now Time) (next Time)) Bool
  (forall ((o Session) (s Session)) (and (= (saw next o s) (saw now o s)) (= (saw-at next o s) (saw-at now o s)))))
(define-fun same-suspects ((now Time) (next Time)) Bool
  (forall ((o Session) (s Session) (v Int)) (= (suspect next o s v) (suspect now o s v))))
(define-fun same-records ((now Time) (next Time)) Bool
  (and (= (grants next) (grants now)) (forall ((h Shard)) (= (record next h) (record now h)))
       (forall ((i Int)) (= (preempted next i) (preempted now i)))))
(define-fun same-leases ((now Time) (next Time)) Bool
  (forall ((i Int)) (and (= (holds next i) (holds now i)) (= (gave next i) (gave now i)))))
(define-fun same-watching ((now Time) (next Time)) Bool
  (and (same-sent now next) (same-views now next) (same-suspects now next)))
(define-fun same-process ((now Time) (next Time)) Bool
  (and (same-clocks now next) (same-dead now next) (same-until now next) (same-closing now next)))

; Session Q ends in the store.
(define-fun ends ((now Time) (next Time) (q Session)) Bool
  (and (member now q)
       (forall ((s Session)) (and (= (member next s) (and (member now s) (not (= s q))))
                                  (= (used next s) (used now s))))
       (same-process now next) (same-beats now next) (same-watching now next)
       (same-records now next) (same-leases now next)))

; =================================================================================================
; The first state: an empty store, and processes with clocks that show anything.
(define-fun init ((t Time)) Bool
  (and (forall ((s Session)) (and (not (member t s)) (not (used t s)) (not (dead t s)) (not (closing t s))
                                  (= (version t s) 0) (<= (until t s) (clock t s))))
       (forall ((s Session) (x Real)) (and (not (beat t s x)) (not (done t s x))))
       (forall ((o Session) (s Session)) (= (saw t o s) 0))
       (forall ((o Session) (s Session) (v Int)) (not (suspect t o s v)))
       (forall ((h Shard)) (= (record t h) 0)) (= (grants t) 0)
       (forall ((i Int)) (and (not (holds t i)) (not (gave t i)) (not (preempted t i))))))

; =================================================================================================
; The steps.

(define-fun rates-bounded ((now Time) (next Time)) Bool
  (forall ((s Session) (o Session))
    (<= (* slow (- (clock next o) (clock now o))) (* fast (- (clock next s) (clock now s))))))

; Time passes. The rates of any two clocks differ by no more than the margin covers.
(define-fun step-tick ((now Time) (next Time)) Bool
  (and (forall ((s Session)) (<= (clock now s) (clock next s)))
       (rates-bounded now next) ; RULE clock-rates
       (same-dead now next) (same-until now next) (same-closing now next) (same-members now next)
       (same-beats now next) (same-watching now next) (same-records now next) (same-leases now next)))

; A process ends.
(define-fun step-die ((now Time) (next Time)) Bool
  (and (forall ((s Session)) (= (dead next s) (or (dead now s) (= s (P now)))))
       (same-clocks now next) (same-until now next) (same-closing now next) (same-members now next)
       (same-beats now next) (same-watching now next) (same-records now next) (same-leases now next)))

; S8: P sends its join, or a heartbeat, and notes the instant.
(define-fun step-send-beat ((now Time) (next Time)) Bool
  (and (not (dead now (P now)))
       (forall ((s Session) (x Real)) (= (beat next s x)
         (or (beat now s x) (and (= s (P now)) (= x (clock now s))))))
       (same-process now next) (same-members now next) (same-beats now next) (same-views now next)
       (same-suspects now next) (same-records now next) (same-leases now next)))

; What a join or heartbeat that P sent at X does in the store.
(define-fun counts ((now Time) (next Time) (p Session) (x Real)) Bool
  (and (forall ((s Session) (y Real)) (= (done next s y) (or (done now s y) (and (= s p) (= y x)))))
       (forall ((s Session)) (<= (version now s) (version next s)))
       (< (version now p) (version next p)) ; RULE M1-raises-version
       (forall ((s Session)) (=> (not (= s p)) (= (version next s) (version now s))))
       (forall ((s Session)) (=> (not (= s p)) (= (fresh next s) (fresh now s))))
       (same-process now next) (same-watching now next) (same-records now next) (same-leases now next)))

; M3, C3: the store applies a join of P. Each attempt has a fresh session, and nothing revives one.
(define-fun step-join ((now Time) (next Time)) Bool
  (let ((p (P now)) (x (X now)))
  (and (beat now p x)
       (not (used now p)) ; RULE M3-C3
       (= (fresh next p) (ite (used now p) (rmax x (fresh now p)) x))
       (forall ((s Session)) (and (= (member next s) (or (member now s) (= s p)))
                                  (= (used next s) (or (used now s) (= s p)))))
       (counts now next p x))))

; M1: the store applies a heartbeat of P, however late.
(define-fun step-beat ((now Time) (next Time)) Bool
  (let ((p (P now)) (x (X now)))
  (and (beat now p x) (used now p)
       (member now p) ; RULE M1-record-exists
       (= (fresh next p) (rmax x (fresh now p)))
       (same-members now next)
       (counts now next p x))))

; S8, C10: P gets the answer to the join or heartbeat that it sent at X, however late.
(define-fun step-answer ((now Time) (next Time)) Bool
  (let ((p (P now)) (x (X now)))
  (and (beat now p x) (not (dead now p))
       (done now p x) ; RULE M1-honest-answer
       (<= (until now p) (until next p))
       (<= (until next p) (rmax (until now p) (+ (clock now p) (window p))))
       (= (until next p) (rmax (until now p) (+ x (window p)))) ; RULE S8
       (forall ((s Session)) (=> (not (= s p)) (= (until next s) (until now s))))
       (same-clocks now next) (same-dead now next) (same-closing now next) (same-members now next)
       (same-beats now next) (same-watching now next) (same-records now next) (same-leases now next))))

; O1, C5: a view, which may be old, shows P a newer version of Q's record; or P counts the silence
; of the version that it has seen from the beginning.
(define-fun step-see ((now Time) (next Time)) Bool
  (let ((p (P now)) (q (Q now)) (v (V now)))
  (and (< 0 v) (<= (saw now p q) v) (<= v (version now q))
       (forall ((o Session) (s Session))
         (and (= (saw next o s) (ite (and (= o p) (= s q)) v (saw now o s)))
              (= (saw-at next o s) (ite (and (= o p) (= s q)) (clock now p) (saw-at now o s)))))
       (same-process now next) (same-members now next) (same-beats now next) (same-sent now next)
       (same-suspects now next) (same-records now next) (same-leases now next))))

; P saw no change of Q's record for Q's TTL, by P's clock: it sends an eviction of that version.
(define-fun step-suspect ((now Time) (next Time)) Bool
  (let ((p (P now)) (q (Q now)))
  (and (< 0 (saw now p q))
       (<= (ttl q) (- (clock now p) (saw-at now p q))) ; RULE silence-for-a-TTL
       (forall ((o Session) (s Session) (v Int)) (= (suspect next o s v)
         (or (suspect now o s v) (and (= o p) (= s q) (= v (saw now p q))))))
       (same-process now next) (same-members now next) (same-beats now next) (same-sent now next)
       (same-views now next) (same-records now next) (same-leases now next))))

; M2: the store applies an eviction of Q that P sent, however late.
(define-fun step-evict ((now Time) (next Time)) Bool
  (let ((p (P now)) (q (Q now)) (v (V now)))
  (and (suspect now p q v)
       (= v (version now q)) ; RULE M2
       (ends now next q))))

; C14: Q is evicted at once, since its host lock was free: a lock ends with its process.
(define-fun step-host-lock ((now Time) (next Time)) Bool
  (and
       (dead now (Q now)) ; RULE C14
       (ends now next (Q now))))

; M3: a join under Q's label ends Q. Supersede is for labels that the platform keeps unique.
(define-fun step-supersede ((now Time) (next Time)) Bool
  (and
       (dead now (Q now)) ; RULE label-unique
       (ends now next (Q now))))

; C1: P sends the close of its session, after it revoked its leases.
(define-fun step-send-close ((now Time) (next Time)) Bool
  (let ((p (P now)))
  (and (forall ((s Session)) (= (closing next s) (or (closing now s) (= s p))))
       (forall ((i Int)) (= (gave next i) (gave now i)))
       (forall ((i Int)) (=> (not (= (g-session i) p)) (= (holds next i) (holds now i))))
       (forall ((i Int)) (=> (holds next i) (holds now i)))
       (forall ((i Int)) (=> (= (g-session i) p) (not (holds next i)))) ; RULE S12-close
       (same-clocks now next) (same-dead now next) (same-until now next) (same-members now next)
       (same-beats now next) (same-watching now next) (same-records now next))))

; The store applies the close of Q.
(define-fun step-close ((now Time) (next Time)) Bool
  (and (closing now (Q now)) (ends now next (Q now))))

; A grant of shard h to session p.
(define-fun grant ((now Time) (next Time) (h Shard) (p Session)) Bool
  (let ((i (+ (grants now) 1)))
  (and (= (grants next) i) (= (g-shard i) h) (= (g-session i) p)
       (forall ((x Shard)) (= (record next x) (ite (= x h) i (record now x))))
       (same-process now next) (same-members now next) (same-beats now next) (same-watching now next)
       (same-leases now next))))

; A1, A5: the store grants P's claim of H. P sent it after its join. G is the lease that a
; preempting claim has seen.
(define-fun step-claim ((now Time) (next Time)) Bool
  (let ((p (P now)) (h (H now)) (r (record now (H now))))
  (and (used now p)
       (member now p) ; RULE A1-claimer-lives
       (or (= r 0) (not (member now (g-session r))) (Preempt now)) ; RULE A1-shard-free
       (=> (Preempt now) (= r (G now))) ; RULE A5-preempt-exact
       (forall ((i Int)) (= (preempted next i) (or (preempted now i) (and (Preempt now) (= i (G now))))))
       (grant now next h p))))

; S4, C1: the process of grant G learns of it, from a reply or a view, however late.
(define-fun step-learn ((now Time) (next Time)) Bool
  (let ((g (G now)))
  (and (<= 1 g)
       (granted now g) ; RULE S4
       (not (gave now g)) ; RULE C1-gave
       (not (closing now (g-session g))) ; RULE C1-closing
       (forall ((i Int)) (and (= (holds next i) (or (holds now i) (= i g))) (= (gave next i) (gave now i))))
       (same-process now next) (same-members now next) (same-beats now next) (same-watching now next)
       (same-records now next))))

; S12, C1: the process of grant G sends a release or transfer of it, after it revoked the lease.
(define-fun step-give ((now Time) (next Time)) Bool
  (let ((g (G now)))
  (and (granted now g)
       (forall ((i Int)) (= (gave next i) (or (gave now i) (= i g))))
       (forall ((i Int)) (=> (holds next i) (holds now i)))
       (forall ((i Int)) (=> (not (= i g)) (= (holds next i) (holds now i))))
       (not (holds next g)) ; RULE S12-give
       (same-process now next) (same-members now next) (same-beats now next) (same-watching now next)
       (same-records now next))))

; R1: the store applies a release of grant G, however late.
(define-fun step-release ((now Time) (next Time)) Bool
  (let ((g (G now)))
  (and (granted now g)
       (gave now g) ; RULE S7-sent-by-holder
       (= (record now (g-shard g)) g) ; RULE R1
       (forall ((x Shard)) (= (record next x) (ite (= x (g-shard g)) 0 (record now x))))
       (= (grants next) (grants now))
       (forall ((i Int)) (= (preempted next i) (preempted now i)))
       (same-process now next) (same-members now next) (same-beats now next) (same-watching now next)
       (same-leases now next))))

; A5: the store applies a transfer of grant G to P, however late.
(define-fun step-transfer ((now Time) (next Time)) Bool
  (let ((g (G now)) (p (P now)))
  (and (granted now g) (used now p)
       (gave now g) ; RULE S7-sent-by-holder
       (= (record now (g-shard g)) g) ; RULE A5-transfer-exact
       (member now p) ; RULE A5-target-lives
       (forall ((i Int)) (= (preempted next i) (preempted now i)))
       (grant now next (g-shard g) p))))

; =================================================================================================
; The property.

; S1: no two processes trust leases of a shard at once, but for leases that were preempted (C11).
(define-fun inv-S1 ((t Time)) Bool
  (forall ((i Int) (j Int)) (=> (and (= (g-shard i) (g-shard j)) (trusts t i) (trusts t j)
                                     (not (preempted t i)) (not (preempted t j)))
                                (= (g-session i) (g-session j)))))

; The lemmas, which make it inductive.

; Nor does one process trust two leases of a shard.
(define-fun inv-one-lease ((t Time)) Bool
  (forall ((i Int) (j Int)) (=> (and (= (g-shard i) (g-shard j)) (trusts t i) (trusts t j)
                                     (not (preempted t i)) (not (preempted t j)))
                                (= i j))))

; What is trusted was granted, and was not given away.
(define-fun inv-holds ((t Time)) Bool
  (and (forall ((i Int)) (=> (holds t i) (and (granted t i) (not (gave t i)) (not (closing t (g-session i))))))))

; Records name grants of their shard. The sessions of grants have joined.
(define-fun inv-grants ((t Time)) Bool
  (and (<= 0 (grants t))
       (forall ((h Shard)) (and (<= 0 (record t h)) (<= (record t h) (grants t))
                                (=> (< 0 (record t h)) (= (g-shard (record t h)) h))))
       (forall ((i Int)) (=> (granted t i) (used t (g-session i))))
       (forall ((s Session)) (=> (member t s) (used t s)))))

; If the record names another lease than one that was neither given away nor preempted, the
; session of that one has ended.
(define-fun inv-kept ((t Time)) Bool
  (forall ((i Int)) (=> (and (granted t i) (not (gave t i)) (not (preempted t i))
                             (not (= (record t (g-shard i)) i)))
                        (not (member t (g-session i))))))

; Trust counts from the sending of a heartbeat that the store applied.
(define-fun inv-until ((t Time)) Bool
  (and (forall ((s Session)) (or (<= (until t s) (clock t s))
                                 (and (used t s) (<= (until t s) (+ (fresh t s) (window s))))))
       (forall ((s Session)) (=> (used t s) (<= (fresh t s) (clock t s))))
       (forall ((s Session) (x Real)) (=> (beat t s x) (<= x (clock t s))))
       (forall ((s Session) (x Real)) (=> (done t s x) (and (used t s) (<= x (fresh t s)))))))

; An observer that has seen the newest version saw it after its heartbeat was sent. So the
; silence that it has measured is at most fast/slow of what the holder's clock ran since.
(define-fun inv-silence ((t Time)) Bool
  (and (forall ((o Session) (s Session)) (and (<= 0 (saw t o s)) (<= (saw t o s) (version t s))))
       (forall ((s Session)) (=> (used t s) (< 0 (version t s))))
       (forall ((o Session) (s Session)) (=> (and (used t s) (= (saw t o s) (version t s)))
         (<= (* slow (- (clock t o) (saw-at t o s))) (* fast (- (clock t s) (fresh t s))))))))

; When an eviction can succeed, the trust of its target has run out.
(define-fun inv-suspect ((t Time)) Bool
  (forall ((o Session) (s Session) (v Int)) (=> (suspect t o s v)
    (and (< 0 v) (<= v (version t s))
         (=> (and (used t s) (= v (version t s))) (<= (+ (fresh t s) (window s)) (clock t s)))))))

; When a session has ended, so has its trust, or its process, or it closed the session.
(define-fun inv-gone ((t Time)) Bool
  (forall ((s Session)) (=> (and (used t s) (not (member t s)))
    (or (dead t s) (closing t s) (<= (+ (fresh t s) (window s)) (clock t s))))))

; =================================================================================================
; Runs from the first state. proof/induction.sh asks Z3 for each: is there such a run?
; "can" is followed by steps that must be possible. "without" is followed by a rule, a property, and
; the steps of a run that breaks the property if the rule is taken out, and cannot if it is there.
; "spare" is followed by a rule that the induction does not need. "also" has other values for the
; induction, and "example" what makes the runs that are shown easier to read.
;
;; example (assert (forall ((s Session)) (and (= (clock t0 s) 0.0) (= (ttl s) 10.0))))
;
;; can send-beat join see tick answer claim learn send-beat beat answer give transfer learn
;; can send-beat join see tick answer claim learn tick send-beat join answer suspect evict claim learn
;; can send-beat join die host-lock send-beat join die supersede send-beat join send-close close
;; can send-beat join answer claim learn give release send-beat join answer claim learn
;
;; without margin S1 send-beat join see tick answer claim learn tick send-beat join answer suspect evict claim learn
;; without clock-rates S1 send-beat join see tick answer claim learn tick send-beat join answer suspect evict claim learn
;; without silence-for-a-TTL S1 send-beat join answer claim learn see suspect evict send-beat join answer claim learn
;; without S8 S1 send-beat join see tick answer claim learn tick send-beat join answer suspect evict claim learn
;; without M1-raises-version S1 send-beat join see claim learn tick send-beat beat answer send-beat join answer suspect evict claim learn
;; without M2 S1 send-beat join see claim learn tick send-beat beat answer send-beat join answer suspect evict claim learn
;; without M3-C3 S1 send-beat join see claim learn tick suspect evict send-beat join answer claim learn send-beat join answer
;; without M1-record-exists S1 send-beat join see claim learn tick suspect evict send-beat join answer claim learn send-beat beat answer
;; without M1-honest-answer S1 send-beat join see claim learn tick suspect evict send-beat join answer claim learn send-beat answer
;; without C14 S1 send-beat join answer claim learn host-lock send-beat join answer claim learn
;; without label-unique S1 send-beat join answer claim learn supersede send-beat join answer claim learn
;; without S12-close S1 send-beat join answer claim learn send-close close send-beat join answer claim learn
;; without C1-closing S1 send-beat join answer claim send-close learn close send-beat join answer claim learn
;; without A1-shard-free S1 send-beat join answer send-beat join answer claim learn claim learn
;; without A5-preempt-exact S1 send-beat join answer send-beat join answer claim learn claim learn
;; without S4 S1 send-beat join answer send-beat join answer claim learn learn
;; without C1-gave S1 send-beat join answer send-beat join answer claim give learn release claim learn
;; without S12-give S1 send-beat join answer send-beat join answer claim learn give release claim learn
;; without S7-sent-by-holder S1 send-beat join answer send-beat join answer claim learn release claim learn
;; without R1 S1 send-beat join answer send-beat join answer claim give release claim learn release claim learn
;; without A5-transfer-exact S1 send-beat join answer send-beat join answer claim give release claim learn transfer learn
;
;; spare A1-claimer-lives
;; spare A5-target-lives
