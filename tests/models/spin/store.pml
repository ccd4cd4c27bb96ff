/* Two guards beside one upstream share a store; each may be killed, or be taken for dead and go on.

   Marks and register live in the key's row and change in one transaction. The rows of a guard that is taken for dead
   are in doubt until its send gate has closed (nothing unsent is sent after that) and what it had sent is over.
   With ROLLBACK the database may once lose everything that it had acknowledged, as a promoted standby does that was told
   nothing. A guard remembers the newest token that it has announced itself, and by its heartbeat what one that is dead
   had announced: up to there nothing is let in any more. Nothing at all is let in until each guard that lives has said so,
   and what was let in is over, or unsent behind a gate that has closed.
   Without -D, and with ROLLBACK: the rules hold. Each of the following takes one away:
   LOCAL_MARKS LOCAL_REGISTER DEAD_ROWS_FREED NO_SEND_GATE, of a rollback NOT_CLOSED NOTHING_KNOWN NOT_HEARD */

#define TOKENS 4 /* one dispatch for each of three tenures */
#define GONE 1
#define FLYING 2
#define IN_DOUBT 3

byte copies[TOKENS];         /* on their way to either guard */
byte W[2];
byte row[8];                 /* by guard and token; only those of guard 0 if the register is shared */
byte keeper[TOKENS];         /* the guard that registered it */
bool dead[2];                /* as its heartbeat row says */
bool killed[2];              /* in truth */
bool closed[TOKENS];         /* the send gate: too late for this dispatch */
byte phase[TOKENS];          /* at the upstream: 0 not sent, 1 sent, 2 runs, 3 over */
byte newest = 0, running = 0;
bool rolled = false, shut = false;  /* the database was; nothing is let in */
byte known[2], up_to = 0;    /* the newest that each guard remembers; the newest that is refused on every key */
bool heard[2];               /* it has said what it remembers since the rollback */
bool forgotten[TOKENS];      /* let in before, and the row is lost */
bool overlap = false, stale = false, twice = false, closed_for_ever = false, seen = false;

#define ROW(g, t) row[(g) * 4 + (t)]
#ifdef LOCAL_MARKS
#define MARK(g) W[g]
#else
#define MARK(g) W[0]
#endif
#ifdef LOCAL_REGISTER
#define AT(g) (g)
#else
#define AT(g) 0
#endif
#define TAKEN(g, i, t) (i != t && (ROW(AT(g), i) == FLYING || ROW(AT(g), i) == IN_DOUBT))
#define CLEAR(g, t) (!TAKEN(g, 1, t) && !TAKEN(g, 2, t) && !TAKEN(g, 3, t))

inline begin(t) {
  overlap = running > 0;
  assert(!overlap);
  stale = t < newest;
  assert(!stale);
  twice = phase[t] != 1;
  assert(!twice);
  phase[t] = 2; running++; newest = t
}

proctype Exchange() {
  byte t, g;
end: do
  :: atomic { copies[1] + copies[2] + copies[3] > 0 ->
       if :: copies[1] > 0 -> t = 1 :: copies[2] > 0 -> t = 2 :: copies[3] > 0 -> t = 3 fi;
       copies[t]--;
       if :: g = 0 :: g = 1 fi;
       if
       :: killed[g] || dead[g] || MARK(g) >= t || up_to >= t -> goto next
       :: else -> MARK(g) = t; if :: t > known[g] -> known[g] = t :: else fi
       fi }
     if
     /* A guard that is taken for dead must not admit: its row would start out in doubt, and nobody keeps it. */
     :: atomic { CLEAR(g, t) && !killed[g] && !dead[g] && !shut ->
          if :: MARK(g) != t || up_to >= t -> goto next :: else fi;
          ROW(AT(g), t) = FLYING; keeper[t] = g }
     :: atomic { !CLEAR(g, t) || killed[g] || dead[g] || shut -> goto next }
     fi;
     if
     :: atomic { killed[g] -> goto next }
     :: atomic { !killed[g] && closed[t] -> ROW(AT(g), t) = GONE; goto next }
     :: atomic { !killed[g] && !closed[t] ->
#ifdef SEE
          if :: dead[g] -> seen = true; assert(!seen) :: else fi;
#endif
          phase[t] = 1 }
     fi;
     atomic { begin(t) };
     atomic { phase[t] = 3; running-- };
     if
     :: atomic { !killed[g] -> ROW(AT(g), t) = GONE }
     :: atomic { killed[g] }
     fi;
next: atomic { t = 0; g = 0 }
  od
}

#ifdef DEAD_ROWS_FREED
#define AFTER_DEATH GONE
#else
#define AFTER_DEATH IN_DOUBT
#endif
/* Doubt ends by time: the dispatch is over, or unsent behind a gate that has closed. */
#define EXPIRES(t) (ROW(AT(keeper[t]), t) == IN_DOUBT && (phase[t] == 3 || phase[t] == 0))

inline bury(g, t) {
  if :: ROW(AT(g), t) == FLYING && keeper[t] == g -> ROW(AT(g), t) = AFTER_DEATH :: else fi
}

inline expire(t) {
  ROW(AT(keeper[t]), t) = GONE;
#ifndef NO_SEND_GATE
  closed[t] = true
#endif
}

inline lose(t) {
  forgotten[t] = row[t] == FLYING || row[t] == IN_DOUBT;
  row[t] = 0
}

inline reopen(t) {
  if :: forgotten[t] -> closed[t] = true :: else fi
}

inline says(g) {
  heard[g] = true;
#ifndef NOTHING_KNOWN
  if :: known[g] > up_to -> up_to = known[g] :: else fi
#endif
}

#ifdef NOT_HEARD
#define ALL_HEARD true
#else
#define ALL_HEARD ((heard[0] || dead[0]) && (heard[1] || dead[1]))
#endif
#define MAY_RUN(t) (forgotten[t] && (phase[t] == 1 || phase[t] == 2))

proctype Accidents() {
end: do
#ifdef ROLLBACK
  :: atomic { !rolled -> rolled = true; lose(1); lose(2); lose(3); W[0] = 0;
       if :: !dead[0] -> says(0) :: !dead[1] -> says(1) fi;
#ifndef NOT_CLOSED
       shut = true
#endif
     }
  :: atomic { rolled && !heard[0] && !dead[0] -> says(0) }
  :: atomic { rolled && !heard[1] && !dead[1] -> says(1) }
  :: atomic { shut && ALL_HEARD && !MAY_RUN(1) && !MAY_RUN(2) && !MAY_RUN(3) -> reopen(1); reopen(2); reopen(3); shut = false }
#endif
  /* Taken for dead, whether it is or not; not between a rollback and its word, which is assumed. */
  :: atomic { !dead[0] && !dead[1] ->
       byte g;
       if :: !rolled || heard[0] -> g = 0 :: !rolled || heard[1] -> g = 1 fi;
       if :: known[g] > known[1 - g] -> known[1 - g] = known[g] :: else fi;
       if :: killed[g] = true :: skip fi;
       dead[g] = true; bury(g, 1); bury(g, 2); bury(g, 3); g = 0 }
  :: atomic { EXPIRES(1) -> expire(1) }
  :: atomic { EXPIRES(2) -> expire(2) }
  :: atomic { EXPIRES(3) -> expire(3) }
  od
}

proctype Gateways() {
  byte t = 1;
  do
  :: atomic { t < TOKENS -> if :: copies[t] = 1 :: copies[t] = 2 fi; t++ }
  :: atomic { t == TOKENS -> break }
  od
}

#define OPEN(t) (row[t] != FLYING && row[t] != IN_DOUBT && row[4 + t] != FLYING && row[4 + t] != IN_DOUBT)

init {
  atomic { run Gateways(); run Accidents(); run Exchange(); run Exchange();
#ifndef ROLLBACK
    /* A third one makes the search of the lost database too large, and a schedule needs only two. */
    run Exchange()
#endif
  }
  /* When nothing more can happen, the key is open to the next one. */
  timeout;
  closed_for_ever = !(OPEN(1) && OPEN(2) && OPEN(3));
  assert(!closed_for_ever)
}
