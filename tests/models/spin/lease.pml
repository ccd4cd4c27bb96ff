/* A lease: for how long its client may work without the gateway (`held_for_ms`), and when the lock becomes free.

   ZooKeeper frees the lock SESSION ticks after it has heard the last heartbeat. The gateway knows only when it sent
   one. It promises the client a time, which the client counts from the sending of its own question. Every message takes
   any time. The gateway may be killed, and an operator or a reload may end the lease. Without -D: the lock is never
   free while its client may still work. Each of the following takes one rule away:
   FROM_ANSWER BREAK_AT_ONCE PROOF_FROM_ANSWER TTL_FORGOTTEN */

#define SESSION 3
#define TTL 2
#define END 9

byte now = 1;

/* ZooKeeper: when the session ends. */
byte heard = 1;
#define EXPIRED (now >= heard + SESSION)

/* The gateway. */
bool alive = true, held = true, broken = false;
bool beats = false, told = false, reached = false;    /* a heartbeat is under way; its answer is; it was heard */
byte beat_sent = 1, beat_answered = 0;
byte proof = 1 + SESSION;
byte lease_end = 1 + TTL;  /* without a renewal */
byte promise = 0;          /* the latest time that any client was promised */

/* The client. */
bool asks = false, answered = false;
byte asked = 0, held_for = 0;
byte works_until = 0;      /* it works at every time before this */

bool free = false, overlap = false, seen = false;

/* Vacuity. */
#define BY_BREAK 1         /* freed after a break, once the promised time was over */
#define BY_DEATH 2         /* freed by the end of a session whose gateway is dead */
#define BY_TTL 3           /* freed because nobody has renewed the lease */
#define TOLD_LATE 4        /* an answer comes when its time is over */
inline see(what) {
#ifdef SEE
  if :: what == SEE -> seen = true; assert(!seen) :: else fi
#else
  skip
#endif
}

inline freed() {
  free = true;
  overlap = now < works_until;
  assert(!overlap)
}

#ifdef TTL_FORGOTTEN
#define UNTIL proof
#else
#define UNTIL (proof < lease_end -> proof : lease_end)
#endif

proctype ZooKeeper() {
end: do
  :: atomic { beats && !reached && !EXPIRED -> heard = now; reached = true }
  :: atomic { reached && !told -> told = true }
  :: atomic { EXPIRED && !free -> if :: !alive -> see(BY_DEATH) :: else fi; held = false; freed() }
  od
}

proctype Gateway() {
end: do
  :: atomic { alive && !beats && now < END -> beats = true; reached = false; told = false; beat_sent = now }
  :: atomic { alive && told ->
#ifdef PROOF_FROM_ANSWER
       proof = now + SESSION;
#else
       proof = beat_sent + SESSION;
#endif
       beats = false; reached = false; told = false }
  /* A question of the client, which is a renewal as well. */
  :: atomic { alive && held && !broken && asks && !answered && now < proof && now < lease_end ->
       lease_end = now + TTL;
       held_for = UNTIL - now;
       if :: UNTIL > promise -> promise = UNTIL :: else fi;
       answered = true }
  :: atomic { alive && held && !broken -> broken = true }    /* an operator, an unknown outcome, a reload */
#ifdef BREAK_AT_ONCE
  :: atomic { alive && held && broken && !free -> held = false; freed() }
#else
  :: atomic { alive && held && broken && !free && now >= promise -> see(BY_BREAK); held = false; freed() }
#endif
  :: atomic { alive && held && !broken && !free && now >= lease_end -> see(BY_TTL); held = false; freed() }
  :: atomic { alive -> alive = false }
  od
}

proctype Client() {
end: do
  :: atomic { !asks && !free && now < END -> asks = true; asked = now }
  :: atomic { asks && answered ->
       if :: asked + held_for <= now -> see(TOLD_LATE) :: else fi;
#ifdef FROM_ANSWER
       if :: now + held_for > works_until -> works_until = now + held_for :: else fi;
#else
       if :: asked + held_for > works_until -> works_until = asked + held_for :: else fi;
#endif
       /* An answer that comes late is to a lock that somebody else may have. */
       overlap = free && now < works_until;
       assert(!overlap);
       asks = false; answered = false; asked = 0; held_for = 0 }
  :: atomic { asks && !answered -> asks = false; asked = 0 }     /* it asks again */
  od
}

init {
  atomic { run ZooKeeper(); run Gateway(); run Client() }
end: do
  :: atomic { now < END -> now++ }
  od
}
