/* No guard, but a delay: after an unclean hand-over the next holder waits until what the last one sent is over.

   The lock's parent keeps a record, held or clean. Nothing is sent after the end of a session (the proof is checked at
   every write), and what was sent is over within the delay. Without -D: no overlap. Rules taken away:
   NO_DELAY GIVE_UP_CLEAN CLEAN_AFTER_UNKNOWN READ_EARLY RETRIED_GRANT */

#define ES 4
#define NONE 255
byte owner = NONE;
byte queue = 0;              /* the next in order of arrival */
byte record = NONE;          /* who has held it uncleanly, or nobody */
byte sent[ES];               /* written by this tenure and not over */
byte running = 0;
bool overlap = false, seen = false;

#ifdef SEE
inline see(what) { if :: what == SEE -> seen = true; assert(!seen) :: else fi }
#else
inline see(what) { skip }
#endif
#define SAT_OUT 1
#define FOUND_CLEAN 2
#define LEFT_UNCLEAN 3

/* What was sent before the grant of `me`, by the tenures before it, is over. */
#define DELAY_OVER(me) ((me < 1 || sent[0] == 0) && (me < 2 || sent[1] == 0) && (me < 3 || sent[2] == 0))

proctype Execution(byte e) {
  atomic { overlap = running > 0; assert(!overlap); running++ };
  atomic { running--; sent[e]-- }
}

proctype Tenure(byte me) {
  bool found_held, sat_out, unknown;
  byte left = 2;
#ifdef READ_EARLY
  /* The record is read together with the list of contenders, but before it. */
  atomic { owner != me -> found_held = record != NONE };
#endif
  /* First in, first out; a session ends when `owner` becomes NONE without `me` knowing. */
  atomic { owner == NONE && queue == me -> owner = me; queue++ };
  /* One transaction: the own node is there, and the record is set. */
  if
  :: atomic { owner == me ->
#ifndef READ_EARLY
       found_held = record != NONE;
#endif
       record = me }
  :: atomic { owner != me -> goto gone }
  fi;
#ifdef RETRIED_GRANT
  /* The answer was lost; the transaction is repeated, and finds what it wrote itself. */
  if :: skip :: atomic { owner == me -> found_held = record != NONE && record != me } fi;
#endif
#ifndef NO_DELAY
  if
  :: atomic { !found_held -> see(FOUND_CLEAN) }
  :: atomic { found_held && DELAY_OVER(me) -> sat_out = true; see(SAT_OUT) }
#ifdef GIVE_UP_CLEAN
  :: atomic { found_held && owner == me -> sat_out = true; left = 0 }
#endif
  :: atomic { owner != me -> goto gone }
  fi;
#endif
  do
  :: atomic { owner == me && left > 0 && sent[me] == 0 && !unknown -> left--; sent[me]++; run Execution(me) }
  :: atomic { sent[me] > 0 && !unknown -> unknown = true }    /* the answer is lost */
  :: atomic { owner == me && (unknown || sent[me] == 0) ->    /* release */
       if
#ifdef CLEAN_AFTER_UNKNOWN
       :: true -> record = NONE
#else
       :: !unknown && (!found_held || sat_out) -> record = NONE
       :: unknown || (found_held && !sat_out) -> see(LEFT_UNCLEAN)
#endif
       fi;
       owner = NONE; break }
  :: atomic { owner != me -> break }
  od;
gone: skip
}

proctype Expirer() {
end: do
  :: atomic { owner != NONE -> owner = NONE }
  od
}

init { atomic { run Expirer(); run Tenure(0); run Tenure(1); run Tenure(2); run Tenure(3) } }
