/* What stands between a guard and the effect of a request: relays, queues, instances and hosts that stand still.

   Each dispatch carries the time after which it must not be begun (`Fencing-Not-After`). A filter in the service
   refuses what comes later. When the guard does not see a dispatch end, it closes the key until not-after, and from
   then on for the length of an execution. Time is a number that grows, so that waits can be too short. A tick may pass
   while all run or while the host of guard and service sleeps; a relay holds a message for any time. An execution lasts
   for at most LENGTH ticks in which its instance runs. Without -D: nothing is begun late or in the wrong order, and no
   two executions overlap. The guard stands for whoever closes a key.

   OTHER_KERNEL    the filter has another clock than the guard, at most ERROR away from it
   INSTANCE_STOPS  the instance may stand still alone. Then an execution takes longer than its length, and only
                   SEEN_TO_RUN helps: the wait counts ticks in which the instance was seen to run
   COPY            a hop sends a dispatch again. A filter has no memory, so both copies may run; still none is
                   begun late, and `expired` is not taken for `not dispatched`
   NOTHING_BETWEEN no filter, and nothing stands between or stands still: what was sent is begun at once or never
   Each of the following takes one rule away:
   NO_FILTER FROM_LAST_BYTE BELIEVE_HOP COUNT_SLEEP TWO_STEPS QUARANTINE_FROM_RESTART NO_CLOCK_ERROR (with OTHER_KERNEL)
   BELIEVE_EXPIRED (with COPY) NO_RESET (with NOTHING_BETWEEN) */

#define DS 3       /* dispatches, each under a newer token than the one before */
#define SEND 2     /* from the admission to not-after */
#define LENGTH 2   /* of an execution */
#define END 12     /* time ends here */
#ifdef OTHER_KERNEL
#define ERROR 1
#else
#define ERROR 0
#endif
#ifdef NO_CLOCK_ERROR
#define TAKEN_OFF 0
#else
#define TAKEN_OFF ERROR
#endif

byte now = 1;
byte ahead = 0;            /* the clock of the filter shows now + ahead - ERROR */

/* The guard. */
byte next = 1;             /* the next dispatch */
byte cur = 0;              /* sent, and not known to be over */
bool alive = true, closed = false;
byte from = 0, counted = 0;    /* the wait of a closed key: when it begins, and how much of it is over */
byte kills = 1;
byte not_after[4];

/* Between guard and service. */
#define NOWHERE 0
#define KERNEL 1           /* in the guard's kernel, unacknowledged */
#define RELAY 2            /* a hop, a queue, or the service's kernel has acknowledged it */
#define BUFFER 3           /* the filter has let it pass; only where check and begin are two steps */
byte place[4], copy[4];
bool orphan = false;       /* the guard was killed, and its kernel goes on sending */

/* The service, and what an observer remembers. */
byte running = 0, left = 0;
bool started[4], denied[4];
byte newest = 0;
bool late = false, overlap = false, stale = false, lied = false, seen = false;

/* Vacuity: -DSEE=n asserts that n never happens, and must find that it does. */
#define EXPIRED 1          /* the filter refuses */
#define WAITED_OUT 2       /* a key is open again after a doubt, while the execution had begun */
#define ANSWERED_EARLY 3   /* a hop answers, and the dispatch is begun after that */
#define RAN_TWICE 4        /* both copies of a dispatch run */
#define SLEPT_INSIDE 5     /* the host sleeps within an execution whose key is closed */
#define AFTER_DEATH 6      /* begun after its guard was killed */
inline see(what) {
#ifdef SEE
  if :: what == SEE -> seen = true; assert(!seen) :: else fi
#else
  skip
#endif
}

#if defined(NO_FILTER) || defined(NOTHING_BETWEEN)
#define IN_TIME(d) true
#else
#define IN_TIME(d) (now + ahead + TAKEN_OFF < not_after[d] + ERROR)
#endif

inline begin(d) {
#if !defined(NO_FILTER) && !defined(NOTHING_BETWEEN)
  late = now >= not_after[d];
  assert(!late);
#endif
  if :: started[d] -> see(RAN_TWICE) :: else fi;
  if :: closed && kills == 1 && next == d + 1 -> see(ANSWERED_EARLY) :: else fi;
  if :: kills == 0 && cur != d -> see(AFTER_DEATH) :: else fi;
#ifndef COPY
  overlap = running != 0;
  assert(!overlap);
  stale = d < newest;
  assert(!stale);
#endif
  lied = denied[d];
  assert(!lied);
  started[d] = true; running = d; left = LENGTH;
  if :: d > newest -> newest = d :: else fi
}

/* The guard has seen no end of the dispatch: it resets the connection, and closes the key. */
inline in_doubt() {
  if :: place[cur] == KERNEL -> place[cur] = NOWHERE :: else fi;
  closed = true; counted = 0;
#ifdef FROM_LAST_BYTE
  from = not_after[cur] - SEND;
  if :: now > from -> counted = now - from :: else fi;
#else
#ifdef NOTHING_BETWEEN
  from = now;
#else
  from = (now > not_after[cur] -> now : not_after[cur]);
#endif
#endif
  cur = 0
}

proctype Guard() {
end: do
  :: atomic { alive && cur == 0 && !closed && next <= DS ->
       cur = next; next++; not_after[cur] = now + SEND; place[cur] = KERNEL;
#ifdef COPY
       copy[cur] = 1
#endif
     }
  /* Out of patience, or the connection breaks. */
  :: atomic { alive && cur != 0 -> in_doubt() }
#ifndef NOTHING_BETWEEN
  /* A hop answers for the service: 502, 504. */
  :: atomic { alive && cur != 0 && place[cur] != KERNEL ->
#ifdef BELIEVE_HOP
       cur = 0
#else
       in_doubt()
#endif
     }
#endif
  :: atomic { alive && closed && counted >= LENGTH && now >= from ->
       if :: started[next - 1] -> see(WAITED_OUT) :: else fi;
       closed = false; counted = 0; from = 0 }
  :: atomic { alive && kills > 0 -> kills--; alive = false; closed = false; counted = 0; from = 0;
       if
       :: cur != 0 && place[cur] == KERNEL ->
#if !defined(NOTHING_BETWEEN)
          if :: place[cur] = NOWHERE :: orphan = true fi
#else
#ifdef NO_RESET
          orphan = true
#else
          place[cur] = NOWHERE
#endif
#endif
       :: else
       fi;
       cur = 0 }
  /* It knows from its store that something may be at work, but not until when it may be begun. */
  :: atomic { !alive -> alive = true; closed = true; counted = 0;
#if defined(QUARANTINE_FROM_RESTART) || defined(NOTHING_BETWEEN)
       from = now }
#else
       from = now + SEND }
#endif
  od
}

/* The first dispatch at this place. The order in which a place gives its messages on is free. */
inline pick(where, d) {
  if :: place[1] == where -> d = 1 :: place[2] == where -> d = 2 :: place[3] == where -> d = 3 fi
}
#define SOME(where) (place[1] == where || place[2] == where || place[3] == where)

proctype Network() {
  byte d;
end: do
#ifdef NOTHING_BETWEEN
  /* The guard's kernel gives up when the time to send is over. That of a killed guard does not. */
  :: atomic { SOME(KERNEL) -> pick(KERNEL, d);
       if
       :: now < not_after[d] || orphan -> place[d] = NOWHERE; begin(d)
       :: else -> place[d] = NOWHERE
       fi; d = 0 }
#else
  :: atomic { SOME(KERNEL) -> pick(KERNEL, d); place[d] = RELAY; d = 0 }
  :: atomic { SOME(RELAY) -> pick(RELAY, d);
       if
       :: IN_TIME(d) ->
#ifdef TWO_STEPS
          place[d] = BUFFER
#else
          if :: copy[d] > 0 -> copy[d]-- :: copy[d] == 0 -> place[d] = NOWHERE fi;
          begin(d)
#endif
       :: else ->
          see(EXPIRED);
          if :: copy[d] > 0 -> copy[d]-- :: else -> place[d] = NOWHERE fi;
          /* The answer may reach the guard. */
          if
#ifdef COPY
#ifdef BELIEVE_EXPIRED
          :: alive && cur == d -> denied[d] = true; lied = started[d]; assert(!lied); cur = 0
#else
          :: alive && cur == d -> in_doubt()
#endif
#else
          :: alive && cur == d -> denied[d] = true; lied = started[d]; assert(!lied); cur = 0
#endif
          :: skip
          fi
       fi; d = 0 }
#ifdef TWO_STEPS
  :: atomic { SOME(BUFFER) -> pick(BUFFER, d); place[d] = NOWHERE; begin(d); d = 0 }
#endif
#endif
  od
}

inline over() {
  if :: alive && cur == running -> cur = 0 :: skip fi;    /* the answer arrives, or is lost */
  running = 0; left = 0
}

/* The service ends an execution at any time, and at its last tick at the latest. */
proctype Service() {
end: do
  :: atomic { running != 0 -> over() }
  od
}

/* Whether the guard counts this tick. */
#define COUNTS (closed && now >= from)
#ifdef COUNT_SLEEP
#define LIVED true
#else
#define LIVED (!asleep)
#endif
#ifdef SEEN_TO_RUN
#define SEEN_THEN (!stopped)
#else
#define SEEN_THEN true
#endif

proctype Clock() {
  bool asleep, stopped;
end: do
  :: atomic { now < END ->
#ifndef NOTHING_BETWEEN
       if :: asleep = true :: skip fi;
#ifdef INSTANCE_STOPS
       if :: !asleep -> stopped = true :: skip fi;
#endif
#endif
       if :: asleep && closed && running != 0 -> see(SLEPT_INSIDE) :: else fi;
       if :: COUNTS && counted < LENGTH && LIVED && SEEN_THEN -> counted++ :: else fi;
       now++;
       if
       :: running != 0 && !asleep && !stopped ->
          left--;
          if :: left == 0 -> over() :: else fi
       :: else
       fi;
       asleep = false; stopped = false }
  od
}

init {
  atomic {
#ifdef OTHER_KERNEL
    if :: ahead = 0 :: ahead = ERROR :: ahead = ERROR + ERROR fi;
#endif
    run Guard(); run Network(); run Service(); run Clock()
  }
}
