/* Tokens across the life of an ensemble: it is wiped or rolled back, and an operator raises the base.

   A token is base + czxid. A gateway takes the base from `meta` when it registers, and uses it until it unregisters.
   Without -D: tokens grow in the order of grants, also across one loss. Rules taken away:
   TWO_BASES SILENT_INIT NO_ROLLBACK_CHECK AWAY (the limit: who was away cannot see a rollback) */

#define GATEWAYS 2
#define STEP 50              /* above what one base can give out here */
byte zxid = 1, saved = 1;
byte base = 0, saved_base = 0, bumps = 2;
bool meta = true, suspect = false;
byte members = 0, lost = 0;
byte highest = 0;            /* of the tokens granted, as an observer knows it */
bool registered[GATEWAYS];
byte base_of[GATEWAYS];      /* as read when it registered */
byte state[GATEWAYS];        /* the highest token seen, on the gateway's disk */
bool regress = false, seen = false;

#ifdef SEE
inline see(what) { if :: what == SEE -> seen = true; assert(!seen) :: else fi }
#else
inline see(what) { skip }
#endif
#define GRANTED_AFTER_BUMP 1
#define DETECTED 2
#define REFUSED_BUMP 3

#ifdef AWAY
#define HEARS(i) registered[i]
#else
/* Assumed: whoever is away for a while has seen the newest token when it comes back. */
#define HEARS(i) true
#endif
/* By its heartbeats a member knows how far the ensemble has come, and by its base what token that would be. */
#define KNOWN(i) ((registered[i] -> base_of[i] : base) + zxid)

inline sees(i) {
  if :: HEARS(i) && KNOWN(i) > state[i] -> state[i] = KNOWN(i) :: else fi
}

proctype Gateway(byte me) {
  byte e, life;
  byte left = 2, sessions = 2;
end: do
  :: atomic { !registered[me] && meta && !suspect && sessions > 0 ->
       sessions--; base_of[me] = base; zxid++; e = base_of[me] + zxid; life = lost;
       if
#ifndef NO_ROLLBACK_CHECK
       :: e <= state[me] -> suspect = true; see(DETECTED)
#else
       :: e <= state[me] -> registered[me] = true; members++
#endif
       :: e > state[me] -> registered[me] = true; members++
       fi;
       e = 0 }
  :: atomic { registered[me] && life != lost -> registered[me] = false }    /* the session is unknown to what was restored */
  :: atomic { registered[me] && life == lost -> registered[me] = false; members-- }
  :: atomic { registered[me] && life == lost && !suspect && left > 0 ->
       left--; zxid++; e = base_of[me] + zxid;
#ifndef NO_ROLLBACK_CHECK
       if
       :: e <= state[me] -> suspect = true; see(DETECTED)
       :: else ->
#endif
         regress = e <= highest;
         assert(!regress);
         highest = e;
         if :: base_of[me] > 0 -> see(GRANTED_AFTER_BUMP) :: else fi;
         sees(0); sees(1)
#ifndef NO_ROLLBACK_CHECK
       fi
#endif
       ; e = 0 }
  od
}

#define TOP (state[0] > state[1] -> state[0] : state[1])

#define TOP (state[0] > state[1] -> state[0] : state[1])
/* Above everything that the gateways' disks and the guards know. */
#define NEW_BASE ((TOP / STEP + 1) * STEP)

proctype Operator() {
end: do
  :: atomic { lost == 0 && saved < zxid -> saved = zxid; saved_base = base }    /* a backup */
  /* Restored from the backup, or wiped: no session survives, and what `meta` says may be older or nothing. */
  :: atomic { lost == 0 -> lost++; zxid = saved; base = saved_base; members = 0; suspect = false }
  :: atomic { lost == 0 -> lost++; zxid = 1; members = 0; meta = false }
#ifdef SILENT_INIT
  :: atomic { !meta -> meta = true; base = 0; state[0] = 0; state[1] = 0 }
#else
  :: atomic { !meta -> meta = true; base = NEW_BASE }    /* `era init` */
#endif
#ifdef TWO_BASES
  :: atomic { meta && bumps > 0 -> bumps--; base = NEW_BASE; suspect = false }
#else
  :: atomic { meta && bumps > 0 && members == 0 -> bumps--; base = NEW_BASE; suspect = false }
  :: atomic { meta && bumps > 0 && members > 0 -> see(REFUSED_BUMP); break }
#endif
  od
}

init { atomic { run Operator(); run Gateway(0); run Gateway(1) } }
