/* Upstreams that call back through the gateway while they work: for their own key, or for another one.

   Two keys. A gateway holds each key by a tenure whose dispatches run one after another, except that a callback with
   the ticket of a dispatch in flight runs inside it. Requests that want another key than their caller's are granted at
   once or refused. Without -D: nothing waits for itself. Each of the following takes one rule away:
   NESTED_WAIT UPGRADE_WAIT NO_TICKET LATE_CALLBACK OUTER_ENDS_CHAIN */

#define NONE 255
byte holder[2] = NONE;       /* the request whose dispatch, with all inside it, has the key */
byte readers = 0;            /* of key 0, when it is held shared */
byte inner = 0;              /* callbacks in flight inside the exclusive holder of key 0 */
byte running = 0;            /* executions of exclusive dispatches of key 0, innermost ones only */
bool answered[3];            /* its callback has an answer */
bool overlap = false, outer_runs = false, seen = false;

#ifdef SEE
inline see(what) { if :: what == SEE -> seen = true; assert(!seen) :: else fi }
#else
inline see(what) { skip }
#endif
#define REFUSED_OTHER 1
#define REFUSED_UPGRADE 2
#define REFUSED_LATE 3
#define RAN_INSIDE 4
#define INNER_OUTLIVES 5

/* Holds `first`, and its upstream asks for `second` meanwhile. */
proctype Crossing(byte me; byte first; byte second) {
  atomic { holder[first] == NONE && (first != 0 || (readers == 0 && inner == 0)) -> holder[first] = me };
#ifdef NESTED_WAIT
  atomic { holder[second] == NONE && (second != 0 || (readers == 0 && inner == 0)) -> holder[second] = me };
  atomic { holder[second] = NONE };
#else
  if
  :: atomic { holder[second] == NONE && (second != 0 || (readers == 0 && inner == 0)) -> holder[second] = me }
     atomic { holder[second] = NONE }
  :: atomic { else -> see(REFUSED_OTHER) }
  fi;
#endif
  atomic { holder[first] = NONE }
}

/* Reads key 0, and its upstream wants to write it meanwhile. */
proctype Upgrade() {
  atomic { holder[0] == NONE && inner == 0 -> readers++ };
#ifdef UPGRADE_WAIT
  atomic { holder[0] == NONE && readers == 0 -> skip };
#else
  see(REFUSED_UPGRADE);
#endif
  atomic { readers-- }
}

/* A callback of the dispatch that `me` has in flight for key 0; it may come at any time, also too late. */
proctype Callback(byte me) {
#if defined(LATE_CALLBACK)
  atomic { inner++ };
#elif defined(NO_TICKET)
  atomic { holder[0] == NONE && readers == 0 -> holder[0] = 99 };
  atomic { holder[0] = NONE; goto done };
#else
  if
  :: atomic { holder[0] == me && outer_runs -> inner++; see(RAN_INSIDE) }
  :: atomic { !(holder[0] == me && outer_runs) -> see(REFUSED_LATE); goto done }
  fi;
#endif
  atomic { overlap = running > 0; assert(!overlap); running++ };
  atomic { running--; if :: !outer_runs -> see(INNER_OUTLIVES) :: else fi; inner-- };
done: answered[me] = true
}

#ifdef OUTER_ENDS_CHAIN
#define CHAIN_OVER true
#else
#define CHAIN_OVER (inner == 0)
#endif

/* Dispatched for key 0; its upstream hands the work to a callback, and waits for it or answers before it is through. */
proctype Outer(byte me) {
  bool waits;
  atomic { holder[0] == NONE && readers == 0 && CHAIN_OVER ->
    holder[0] = me; outer_runs = true; overlap = running > 0; assert(!overlap); running++ };
  atomic { running--; run Callback(me); if :: waits = true :: skip fi };
  (answered[me] || !waits);
  /* The answer is complete. What still runs inside keeps the key for the chain. */
  atomic { outer_runs = false; holder[0] = NONE }
}

#ifdef CROSSING
init { atomic { run Crossing(1, 0, 1); run Crossing(2, 1, 0); run Upgrade(); run Upgrade() } }
#else
init { atomic { run Outer(1); run Outer(2) } }
#endif
