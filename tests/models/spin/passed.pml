/* The time of a store that guards share. Nobody's clock is asked but as a measure: a beat adds what its guard has seen
   pass since its last answer, and only if nobody has moved the time since. A guard may stop for as long as it likes.

   A doubt is written as: the time that stands there, what may have passed without being written, and how long it takes.
   It counts as over when the time has reached that. Without -D: not before so much has really passed.
   Each of the following takes a rule away: LARGER SILENT NO_SLACK */

#define LAST 7               /* real time ends here */
#define TAKES 2              /* how long a doubt takes */

byte now = 0;                /* real time: every guard's clock runs with it */
byte time = 0;               /* as it stands in the store */
byte tick = 0;               /* who moved it last */
byte ticks = 0;

bool here[2];                /* has joined */
byte met[2];                 /* the tick at the last beat */
byte told[2];                /* the time at the last beat */
byte sent[2];                /* when the last beat was sent */
byte before[2];              /* and the one before */

byte due = 0;                /* real time when the doubt may end */
byte until = 0;              /* store time when it ends */
bool doubt = false, over = false, early = false, seen = false;

inline moved() { ticks++; tick = ticks }

/* Whoever joins has seen nothing pass. */
inline join(g) {
  here[g] = true;
#ifndef SILENT
  moved();
#endif
  met[g] = tick; told[g] = time; sent[g] = now; before[g] = now
}

inline beat(g) {
#ifdef LARGER
  if :: told[g] + (now - sent[g]) > time -> time = told[g] + (now - sent[g]); moved() :: else fi;
#else
  if :: tick == met[g] && now > sent[g] -> time = time + (now - sent[g]); moved() :: else fi;
#endif
  before[g] = sent[g]; met[g] = tick; told[g] = time; sent[g] = now
}

inline write(g) {
  doubt = true; due = now + TAKES;
#ifdef NO_SLACK
  until = time + TAKES
#else
  until = time + (now - before[g]) + TAKES
#endif
}

inline look() {
  if :: time >= until -> over = true; early = now < due; assert(!early) :: else fi
}

proctype Guard(byte g) {
end: do
  :: atomic { !here[g] && now < LAST -> join(g) }
  :: atomic { here[g] && (now > sent[g] || tick != met[g]) -> beat(g); if :: doubt && !over -> look() :: else fi }
  :: atomic { here[g] && !doubt -> write(g) }
  od
}

init {
  atomic { run Guard(0); run Guard(1) }
end: do
  :: atomic { now < LAST -> now++ }
#ifdef SEE
  :: atomic { over -> seen = true; assert(!seen) }
#endif
  od
}
