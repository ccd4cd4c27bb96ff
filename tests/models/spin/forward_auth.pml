/* Another proxy forwards: it asks a gateway for the lock of a request, sends the request to the service by itself, and tells
   the end. A reload gives the route another key, so the same resource has two keys, one after the other.

   Base case: the proxy keeps to its configuration, so a request is over before its lease is. Without -D: no overlap, and
   nothing stale or twice. Rules taken away:
   TTL_SHORT        the proxy's time limits are below the time of the lease
   END_ON_OWN       what the proxy says for itself (502, 504, 499) is no end of the service
   HEAD_ENDS        nor is a status whose answer broke off in the middle
   ANY_LEASE        the end of a lease frees this lease, and not whoever has the key now
   FAIL_OPEN        without an answer to the question nothing is sent
   RETRIES          nothing is sent twice
   FORGETS_RELOAD   a plan with other keys waits for the requests of the plan before
   COUNT_LATE       these are counted before their lease is asked for
   STILL: the proxy stands still for any time, and sends after its lease. With COMPARES a service compares tokens and writes in
   one step; then nothing is stale or twice, also with RETRIES. Rule taken away: EQUAL_PASSES */

#ifndef RS
#define RS 3                 /* requests: two or three */
#endif
#define NONE 255
byte holder[2] = NONE;       /* of the key of each edition: the request whose lease has it */
byte edition = 0;
byte counted = 0;            /* requests of the first edition that are not over */
byte tokens = 0, newest = 0;
byte work[RS];               /* sent, and not over at the service */
byte begun[RS];              /* executions with the token of this request */
bool may_send[RS];           /* the proxy has its grant and has not sent yet */
byte running = 0;
bool overlap = false, stale = false, twice = false, seen = false;

#ifdef SEE
inline see(what) { if :: what == SEE -> seen = true; assert(!seen) :: else fi }
#else
inline see(what) { skip }
#endif
#define QUESTION_LOST 1
#define BROKEN_OFF 2
#define END_LOST 3
#define LATE_END 4
#define SECOND_EDITION 5
#define REFUSED 6
#define RUNS_OUT 7

#ifdef STILL
#define OUT(r) true
#else
#ifdef TTL_SHORT
#define OUT(r) (!may_send[r])
#else
#define OUT(r) (!may_send[r] && work[r] == 0)
#endif
#endif

inline freed(k) { holder[k] = NONE; if :: k == 0 -> counted-- :: else fi }

/* A request at the service; `t` is NONE where nobody has given a token. */
proctype Execution(byte r, t) {
  atomic {
#ifdef COMPARES
#ifdef EQUAL_PASSES
    if :: t < newest -> see(REFUSED); work[r]--; goto over :: else fi;
#else
    if :: t <= newest -> see(REFUSED); work[r]--; goto over :: else fi;
#endif
#endif
#ifndef STILL
    overlap = running > 0; assert(!overlap);
#endif
    if
    :: t == NONE -> skip
    :: else -> stale = t < newest; assert(!stale); twice = begun[r] > 0; assert(!twice); newest = t; begun[r]++
    fi;
    running++
  };
  atomic { running--; work[r]-- };
over: skip
}

/* One request of the proxy. */
proctype Request(byte r) {
  byte key, token;
  bool own, middle;
  /* The question: the plan in force says the key. */
#ifdef COUNT_LATE
  key = edition;
#else
  atomic { key = edition; if :: key == 0 -> counted++ :: else fi };
#endif
  if
#ifdef FORGETS_RELOAD
  :: atomic { holder[key] == NONE ->
#else
  :: atomic { holder[key] == NONE && (key == 0 || counted == 0) ->
#endif
#ifdef COUNT_LATE
       if :: key == 0 -> counted++ :: else fi;
#endif
       if :: key == 1 -> see(SECOND_EDITION) :: else fi;
       holder[key] = r; tokens++; token = tokens; may_send[r] = true }
  :: atomic { true ->                                       /* it has waited for long enough, or nobody answers */
#ifndef COUNT_LATE
       if :: key == 0 -> counted-- :: else fi;
#endif
#ifdef FAIL_OPEN
       work[r]++; run Execution(r, NONE);
#endif
       goto gone }
  fi;
  /* The answer to the question. */
  if
  :: skip
  :: atomic { may_send[r] = false; see(QUESTION_LOST); goto gone }
  fi;
  /* The proxy may stand still here. */
  atomic { may_send[r] = false; work[r]++; run Execution(r, token) };
#ifdef RETRIES
  if :: atomic { work[r]++; run Execution(r, token) } :: skip fi;
#endif
  if
  :: atomic { work[r] == 0 -> skip }                        /* the whole answer */
  :: atomic { work[r] > 0 -> own = true; see(BROKEN_OFF) }  /* silence, or the client has gone */
  :: atomic { work[r] > 0 -> middle = true }                /* the head, and then the end of the connection */
  fi;
  /* The end is told. */
  if
  :: atomic { true ->
       if
#ifndef END_ON_OWN
       :: own -> skip
#endif
#ifndef HEAD_ENDS
       :: middle -> skip
#endif
       :: else ->
            if
            :: holder[key] == r -> freed(key)
#ifdef ANY_LEASE
            :: holder[key] != NONE && holder[key] != r -> freed(key)
#endif
            :: else -> see(LATE_END)
            fi
       fi }
  :: see(END_LOST)
  fi;
gone: skip
}

/* Leases run out. */
proctype Time() {
end: do
  :: atomic { holder[0] != NONE && OUT(holder[0]) -> see(RUNS_OUT); freed(0) }
  :: atomic { holder[1] != NONE && OUT(holder[1]) -> see(RUNS_OUT); freed(1) }
  od
}

init {
  atomic {
    run Time(); run Request(0); run Request(1);
#if RS == 3
    run Request(2)
#endif
  };
  edition = 1                  /* the reload */
}
