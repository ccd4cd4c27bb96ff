/* One key behind a guard: sessions end at any time, the network delays and copies, the guard may be killed.

   A token t is (E, G) as one number, E * GS + G, so that numbers are ordered as tokens are. Time is not modelled: a
   bound such as max_execution is the assumption that what it bounds is over, so whatever waits for it may go on as
   soon as the execution has ended, and never before. Without -D: exclusive dispatches straight to the guard.

   HOP          a hop between gateway and guard copies requests; the gateway takes every refusal for unknown
   SHARED       every tenure is exclusive or shared. A guard compares no two dispatches of one shared tenure, so that with
                HOP a shared dispatch runs as often as it is copied; an exclusive one still runs once
   NEVER_REST   what was at work once stays so in the store: fewer states
   Each of the following takes one rule away:
   NO_GUARD LEASE TWO_STEPS NO_SETTLE NO_SECOND_CHECK SECOND_CHECK_GREATER NO_DETACH NO_QUARANTINE LAX_RECOVERY
   NO_DOUBT EARLY_NO KEEP_UNKNOWN BELIEVE_HOP NUMBER_ONLY ONE_MARK NO_SECOND_READ_CHECK
   SENT_UNWRITTEN REST_IN_FLIGHT REST_IN_DOUBT REST_IN_QUARANTINE */

#ifndef ES
#define ES 3 /* tenures */
#endif
#ifndef GS
#define GS 1 /* dispatches of a tenure */
#endif
#define TOKENS 7 /* from 1 to ES * GS, at most 6 */
#define NONE 255
#define E(t) (((t) - 1) / GS)
#define LAST(t) ((E(t) + 1) * GS)

#ifdef HOP
#define COPIES 1
#else
#define COPIES 0
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#ifdef SHARED
bool reads[3];
#define READS(e) reads[e]
#else
#define READS(e) false
#endif
#define CONFLICT(a, b) (!(READS(a) && READS(b)))

/* What a gateway may be told. */
#define OK 1
#define UNKNOWN 2
#define DUPLICATE 3
#define STALE 4
#define BUSY 5
#define QUARANTINED 6

/* The lock service and the network. */
byte owner = NONE, next_e = 0;
byte copies[TOKENS];     /* on their way to the guard */
bool awaited[TOKENS];    /* a gateway waits for the answer */
byte answers[TOKENS];
byte may_copy = COPIES;

/* The guard. Its marks are durable as to E; the rest is gone with the process. */
byte W = 0, R = 0;
byte flying[3], doubts[3];
byte life = 0;
bool quarantine = false, recovered = false;
/* That something may be at work is written down before a byte is sent, that nothing is some time after it is so. The
   disk takes such words in their order: it is `behind` by so many, each the opposite of the one before. */
bool at_work = false;
byte behind = 0;
#define WRITTEN_AT_WORK (at_work ^ (behind & 1))
byte may_lose = LOSSES;
bool idle[3] = true;

/* The upstream, and what an observer remembers. */
byte pending = 0;        /* written to the upstream, and not over */
byte executing[3];
byte newest = 0, newest_write = 0;
bool started[TOKENS], denied[TOKENS];
bool overlap = false, stale = false, twice = false, lied = false;
bool newest_refused = false, closed_for_ever = false, seen = false;
bool waited_out = false; /* the last restart began with a quarantine */

/* Vacuity: -DSEE=n asserts that n never happens, and must find that it does. */
#define WAITED 1
#define REFUSED_STALE 2
#define REFUSED_QUARANTINE 3
#define CLOSED_BY_DOUBT 4
#define REFUSED_DUPLICATE 5
#define RESTARTED_MARK 6
#define OLDER_READER 7
#define READERS_TOGETHER 8
#define AT_ONCE 9          /* let in after a restart that knew of nobody at work */
#define REST_OVERTAKEN 10  /* at work again before it was written that nothing is */
#define READ_TWICE 11      /* a copy of a shared dispatch runs as well */
inline see(what) {
#ifdef SEE
  if :: what == SEE -> seen = true; assert(!seen) :: else fi
#else
  skip
#endif
}

#define RUNS(i, e) (executing[i] > 0 && CONFLICT(i, e))
#define FLIES(i, e) (flying[i] > 0 && i != (e) && CONFLICT(i, e))
#define DOUBTED(i, e) (doubts[i] > 0 && CONFLICT(i, e))
#define IN_DOUBT(e) (DOUBTED(0, e) || DOUBTED(1, e) || DOUBTED(2, e))
#ifdef NO_SETTLE
#define CLEAR(e) true
#else
#define CLEAR(e) (!FLIES(0, e) && !FLIES(1, e) && !FLIES(2, e) && !IN_DOUBT(e))
#endif

inline begin(t) {
  overlap = RUNS(0, E(t)) || RUNS(1, E(t)) || RUNS(2, E(t));
  assert(!overlap);
  stale = (t < newest_write) || (!READS(E(t)) && t < newest);
  assert(!stale);
  if :: started[t] && READS(E(t)) -> see(READ_TWICE) :: else fi;
  twice = started[t] && !READS(E(t));
  assert(!twice);
  lied = denied[t];
  assert(!lied);
  started[t] = true;
  if :: READS(E(t)) && executing[0] + executing[1] + executing[2] > 0 -> see(READERS_TOGETHER) :: else fi;
  executing[E(t)]++;
  if :: t > newest -> newest = t :: else fi;
  if :: !READS(E(t)) && t > newest_write -> newest_write = t :: else fi;
}

/* The first answer counts, the others find nobody. */
inline answer(t, what) {
  if :: awaited[t] && answers[t] == 0 -> answers[t] = what :: else fi
}

#define ARRIVED (copies[1] + copies[2] + copies[3] + copies[4] + copies[5] + copies[6] > 0)
/* The network delivers in any order. */
inline pick(t) {
  if
  :: copies[1] > 0 -> t = 1 :: copies[2] > 0 -> t = 2 :: copies[3] > 0 -> t = 3
  :: copies[4] > 0 -> t = 4 :: copies[5] > 0 -> t = 5 :: copies[6] > 0 -> t = 6
  fi;
  copies[t]--
}

#ifdef NUMBER_ONLY
#define PASSED(mark, t) (E(mark) > E(t) && mark > 0)
#else
#define PASSED(mark, t) (mark >= t)
#endif
#ifdef ONE_MARK
#define AFTER_READS(t) true
#else
#define AFTER_READS(t) (!PASSED(R, t))
#endif
#ifdef SECOND_CHECK_GREATER
#define STILL_NEWEST(t) (t > W && AFTER_READS(t))
#else
#define STILL_NEWEST(t) (W == t && AFTER_READS(t))
#endif

/* Before the wait: what is not refused has announced its tenure. */
inline compare_and_raise(t, refusal) {
  refusal = 0;
  if
  :: !READS(E(t)) && PASSED(W, t) && E(t) == E(W) && !recovered -> refusal = DUPLICATE; see(REFUSED_DUPLICATE)
  :: else ->
    if
    :: quarantine -> refusal = QUARANTINED; see(REFUSED_QUARANTINE)
    :: else ->
      if
      :: PASSED(W, t) || (!READS(E(t)) && !AFTER_READS(t)) -> refusal = STALE;
         if :: recovered && E(t) == E(W) -> see(RESTARTED_MARK) :: else -> see(REFUSED_STALE) fi
      :: else ->
        if
        :: READS(E(t)) && t > R -> R = t
        :: READS(E(t)) && t <= R -> see(OLDER_READER)
        :: !READS(E(t)) -> W = t; recovered = false
        fi
      fi
    fi
  fi
}

/* After the wait, in the step that registers. */
inline check_again(t, refusal) {
  if
#ifdef NO_SECOND_CHECK
  :: true -> refusal = 0
#endif
#ifdef NO_SECOND_READ_CHECK
  :: READS(E(t)) -> refusal = 0
#else
  :: READS(E(t)) -> refusal = (PASSED(W, t) -> STALE : 0)
#endif
#ifndef NO_SECOND_CHECK
  :: !READS(E(t)) ->
     refusal = (STILL_NEWEST(t) -> 0 : STALE);
#ifndef NUMBER_ONLY
     newest_refused = refusal != 0 && W == t && R < t;
     assert(!newest_refused)
#endif
#endif
  fi
}

/* In the step that registers: nothing is written where it stands there already. */
inline take_up() {
  if
  :: !at_work ->
     if :: behind > 0 -> see(REST_OVERTAKEN) :: else fi;
     at_work = true; behind++
  :: else
  fi;
  if :: life > 0 && !waited_out -> see(AT_ONCE) :: else fi
}

#if defined(SENT_UNWRITTEN) || defined(NO_GUARD) || defined(LEASE)
#define ON_DISK true
#else
#define ON_DISK (behind == 0)
#endif

#ifdef REST_IN_FLIGHT
#define NOTHING_FLIES true
#else
#define NOTHING_FLIES (flying[0] + flying[1] + flying[2] == 0)
#endif
#ifdef REST_IN_DOUBT
#define NOTHING_DOUBTED true
#else
#define NOTHING_DOUBTED (doubts[0] + doubts[1] + doubts[2] == 0)
#endif
#ifdef REST_IN_QUARANTINE
#define NOTHING_INHERITED true
#else
#define NOTHING_INHERITED (!quarantine)
#endif

#define ATTACHED 0
#define DOUBT 1
#define FREED 2

/* The exchanges are alike, so that the first idle one takes what comes; which one it is would only multiply states. */
#define IDLE(me) (idle[me] && (me < 1 || !idle[0]) && (me < 2 || !idle[1]))

/* One exchange: the guard's handler up to the upstream, then the execution there, which outlives the guard. */
proctype Exchange(byte me) {
  byte t, refusal, mine, entry;
  bool runs, waited;
end: do
  :: atomic { IDLE(me) && ARRIVED -> pick(t); idle[me] = false; mine = life; refusal = 0; entry = ATTACHED; runs = false
#if defined(NO_GUARD) || defined(LEASE)
       ; entry = FREED; goto forward
     }
#else
       ; compare_and_raise(t, refusal)
       ; if :: refusal != 0 -> answer(t, refusal); goto next :: else fi
     }
wait:
     /* The critical section; it sees in one step that the wait is over and that the token is still the newest. */
     if
     :: atomic { mine == life && CLEAR(E(t)) ->
          check_again(t, refusal);
          if :: refusal != 0 -> answer(t, refusal); goto next :: else fi;
          if :: waited -> see(WAITED) :: else fi
#ifdef TWO_STEPS
        }
        if :: atomic { mine == life -> flying[E(t)]++; take_up() } :: atomic { mine != life -> goto next } fi
#else
          ; flying[E(t)]++; take_up() }
#endif
     :: atomic { mine == life && !CLEAR(E(t)) ->    /* waited for too long */
          if :: IN_DOUBT(E(t)) -> see(CLOSED_BY_DOUBT) :: else fi;
          answer(t, BUSY); goto next }
     :: atomic { mine != life -> goto next }
#ifdef SEE
     :: atomic { mine == life && !CLEAR(E(t)) && !waited -> waited = true; goto wait }
#endif
     fi;
#endif
forward:
     if
     :: atomic { mine == life && ON_DISK -> pending++ }
     :: atomic { mine != life -> goto next }
     fi;
     do
     :: atomic { !runs -> begin(t); runs = true }
     :: atomic { runs -> executing[E(t)]--; pending--;
          if
          :: mine == life && entry == ATTACHED -> flying[E(t)]--; answer(t, OK)
          :: mine == life && entry == DOUBT -> doubts[E(t)]--
          :: else
          fi;
          goto next }
#if !defined(NO_GUARD) && !defined(LEASE)
     :: atomic { mine == life && entry == ATTACHED && may_lose > 0 ->    /* the upstream's connection breaks */
          may_lose--; flying[E(t)]--; answer(t, UNKNOWN);
#ifdef NO_DOUBT
          entry = FREED }
#else
          entry = DOUBT; doubts[E(t)]++ }
#endif
#ifdef EARLY_NO
     /* A probe asks before the request has begun, and is told that there is none. */
     :: atomic { mine == life && entry == DOUBT && !runs -> entry = FREED; doubts[E(t)]-- }
#endif
#ifdef NO_DETACH
     :: atomic { mine == life && entry == ATTACHED && !awaited[t] -> entry = FREED; flying[E(t)]-- }
#endif
#endif
     od;
next: atomic { t = 0; refusal = 0; mine = 0; entry = 0; runs = false; waited = false; idle[me] = true }
  od
}

/* What the guard writes by itself, and when the disk has it. */
proctype Disk() {
end: do
#ifndef NEVER_REST
  :: atomic { at_work && NOTHING_FLIES && NOTHING_DOUBTED && NOTHING_INHERITED -> at_work = false; behind++ }
#endif
  :: atomic { behind > 0 -> behind-- }
  od
}

/* An unclean stop: of the marks, E is on disk; and whether something may be at work. */
proctype Killer() {
  byte restarts = RESTARTS;
end: do
  :: atomic { restarts > 0 ->
       restarts--; life++; recovered = true;
       flying[0] = 0; flying[1] = 0; flying[2] = 0; doubts[0] = 0; doubts[1] = 0; doubts[2] = 0;
#ifdef LAX_RECOVERY
       recovered = false; W = (W > 0 -> E(W) * GS : 0); R = (R > 0 -> E(R) * GS : 0);
#else
       W = (W > 0 -> LAST(W) : 0); R = (R > 0 -> LAST(R) : 0);
#endif
       at_work = WRITTEN_AT_WORK; behind = 0;
#ifndef NO_QUARANTINE
       quarantine = at_work; waited_out = at_work
#endif
     }
  :: atomic { quarantine && pending == 0 -> quarantine = false }
  od
}

proctype Gateway() {
  byte e = NONE, g, t, told;
  bool not_dispatched;
  do
  /* Granted: the holder before has released, or its session has ended, which it need not know. */
  :: atomic { e == NONE && next_e < ES -> e = next_e; owner = e; next_e++; g = 0;
#ifdef SHARED
       if :: reads[e] = true :: skip fi
#endif
     }
  :: atomic { e == NONE && next_e == ES -> break }
  :: atomic { e != NONE && g > 0 -> e = NONE; g = 0 }
#ifdef LEASE
  :: atomic { e != NONE && g < GS && owner == e -> skip }
     /* Checked; now a pause may come. */
     atomic { g++;
#else
  :: atomic { e != NONE && g < GS ->
       g++;
#endif
       t = e * GS + g; awaited[t] = true;
       if :: copies[t] = 1 :: may_copy > 0 -> may_copy--; copies[t] = 2 fi };
     atomic {
       if
       :: answers[t] != 0 -> told = answers[t]
       :: told = UNKNOWN    /* killed, cut off, or out of patience */
       fi;
       awaited[t] = false; answers[t] = 0;
#if defined(HOP) && !defined(BELIEVE_HOP)
       not_dispatched = false;
#else
       not_dispatched = told >= STALE;
#endif
       if
       :: not_dispatched -> denied[t] = true; lied = started[t]; assert(!lied)
       :: else
       fi;
       /* An unknown outcome retires the tenure, and so does `stale`. */
       if
       :: told == OK
       :: told > STALE && not_dispatched
#ifdef KEEP_UNKNOWN
       :: told == UNKNOWN
#else
       :: told == UNKNOWN || told == DUPLICATE -> e = NONE; g = 0
#endif
       :: told == STALE || (told > STALE && !not_dispatched) -> e = NONE; g = 0
       fi;
       t = 0; told = 0; not_dispatched = false }
  od
}

init {
  atomic {
    run Killer(); run Gateway(); run Gateway();
    run Exchange(0); run Exchange(1); run Exchange(2); run Disk()
  }
  /* When nothing more can happen, the key is open to the next one. */
  timeout;
  closed_for_ever = quarantine || flying[0] + flying[1] + flying[2] + doubts[0] + doubts[1] + doubts[2] > 0;
  assert(!closed_for_ever)
}
