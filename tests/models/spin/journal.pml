/* One operation that must execute at most once, asked for three times, behind a guard that keeps a journal.

   Every attempt is a dispatch of its own tenure, so that fencing alone lets a repeat through: its token is newer.
   Without -D: at most once. Each of the following takes one rule away:
   NO_JOURNAL LOOKUP_ON_ARRIVAL_ONLY UNKNOWN_REEXECUTED FORWARD_BEFORE_COMMIT EARLY_NO FORGET_LOST */

#define ATTEMPTS 3
/* The journal's entry, durable. */
#define ABSENT 0
#define ADMITTED 1
#define DONE 2

byte entry = ABSENT;
byte W = 0, life = 0;
bool quarantine = false, flying = false, doubt = false;
byte pending = 0, runs = 0;      /* written upstream and not over; executions begun */
bool over = false;               /* the upstream has executed it, so that a probe says done */
byte restarts = 2, may_lose = 1;
bool twice = false, invented = false, lied = false, seen = false;

#ifdef SEE
inline see(what) { if :: what == SEE -> seen = true; assert(!seen) :: else fi }
#else
inline see(what) { skip }
#endif
#define REPLAYED 1
#define TOLD_RUNNING 2
#define TOLD_UNKNOWN 3
#define PROBED_NO 4
#define PROBED_DONE 5

#ifdef UNKNOWN_REEXECUTED
#define EXECUTES (entry == ABSENT || (entry == ADMITTED && !flying))
#elif defined(NO_JOURNAL)
#define EXECUTES true
#else
#define EXECUTES (entry == ABSENT)
#endif

/* What a repeat is told. */
inline tell() {
  if
  :: entry == DONE -> invented = runs == 0; assert(!invented); see(REPLAYED)
  :: entry == ADMITTED && flying -> see(TOLD_RUNNING)
  :: entry == ADMITTED && !flying -> see(TOLD_UNKNOWN)
  :: entry == ABSENT
  fi
}

proctype Attempt(byte t) {
  byte mine;
  bool began, forgot;
  /* It arrives at any time; a repeat of what is known moves no mark. */
  atomic { mine = life;
    if :: quarantine -> goto end_refused :: else fi;
    if :: !EXECUTES -> tell(); goto end_refused :: else fi };
  atomic {
    if :: mine != life || quarantine || t <= W -> goto end_refused :: else -> W = t fi };
  /* The admitting transaction. */
  if
  :: atomic { mine == life && !flying && !doubt ->
       if :: W != t -> goto end_refused :: else fi;
#ifndef LOOKUP_ON_ARRIVAL_ONLY
       if :: !EXECUTES -> tell(); goto end_refused :: else fi;
#endif
       flying = true;
#ifndef FORWARD_BEFORE_COMMIT
       entry = ADMITTED
#endif
     }
  :: atomic { mine == life && (flying || doubt) -> goto end_refused }    /* busy */
  :: atomic { mine != life -> goto end_refused }
  fi;
  /* Forward. What is not written can still be taken back. */
  if
  :: atomic { mine == life -> pending++ }
  :: atomic { mine == life -> flying = false; entry = ABSENT; goto end_refused }
  :: atomic { mine != life -> goto end_refused }
  fi;
  do
  :: atomic { !began -> began = true; twice = runs > 0; assert(!twice); runs++ }
  :: atomic { began -> over = true; pending--; break }
#ifdef FORWARD_BEFORE_COMMIT
  :: atomic { mine == life && entry == ABSENT -> entry = ADMITTED }
#endif
  :: atomic { mine == life && flying && !forgot && may_lose > 0 ->    /* the upstream's connection breaks */
       may_lose--; flying = false; doubt = true; forgot = true;
#ifdef FORGET_LOST
       entry = ABSENT
#endif
     }
  od;
  if
  :: atomic { mine == life && forgot -> doubt = false }
  :: atomic { mine == life && !forgot -> entry = DONE; flying = false }
  :: atomic { mine != life }
  fi;
end_refused: skip
}

#ifdef EARLY_NO
#define MAY_SAY_NO true
#else
/* After max_execution: nothing that was written is still to be executed. */
#define MAY_SAY_NO (pending == 0)
#endif

proctype Accidents() {
end: do
  :: atomic { restarts > 0 -> restarts--; life++; flying = false; doubt = false; quarantine = true }
  :: atomic { quarantine && pending == 0 -> quarantine = false }
  /* The probe settles what is unknown. */
  :: atomic { entry == ADMITTED && !flying && over -> entry = DONE; doubt = false; see(PROBED_DONE) }
  :: atomic { entry == ADMITTED && !flying && runs == 0 && MAY_SAY_NO ->
       entry = ABSENT; doubt = false; see(PROBED_NO) }
  od
}

init { atomic { run Accidents(); run Attempt(1); run Attempt(2); run Attempt(3) } }
