/* A key with N permits: who may hold one, and whom a guard lets in.

   Contenders stand in the line of the key, and the first N of them make one of N nodes beside it, whose czxid is their
   token. ZooKeeper removes place and permit of a session that is lost; its holder does not know it, may have its request
   under way, and works on. A guard keeps marks by permit, and lets one execution of each at work. Answers of ZooKeeper
   are lost; messages take any time. Without -D: never more than N at work, nothing begins below a token that began
   before it under its permit, nobody passes those who stand before it, nobody has two permits, all who hold go by one
   number, and whoever holds a permit is not refused.

   OTHER_NUMBER   one contender goes by another number of permits
   Each of the following takes one rule away:
   NO_RANK PLACE_TOKEN UNKNOWN_FORGOTTEN ONE_MARK NO_GUARD NO_SETTLE NO_SECOND_CHECK NO_DIFFER (with OTHER_NUMBER) */

#ifndef N
#define N 2
#endif
#define CS 3       /* contenders, 1 to CS */
#ifndef TURNS
#define TURNS 3    /* of all of them */
#endif
#ifndef LOSSES
#define LOSSES 2   /* sessions that are lost */
#endif
#ifndef LIES
#define LIES 1     /* answers that are lost */
#endif
#define PERMITS (N + 1)
/* While a number is changed, holders of lost sessions may be at work by the former one. */
#ifdef OTHER_NUMBER
#define MOST (N + 1)
#else
#define MOST N
#endif

/* ZooKeeper. */
byte zxid = 0;
byte place[4];             /* czxid of the place in line; 0: none */
byte number[4];            /* by which number of permits a place goes */
byte owner[PERMITS];       /* 0: the permit is free */
byte made[PERMITS];        /* czxid of the permit's node */
bool lost[4];              /* the session, unknown to its holder */
byte losses = LOSSES, lies = LIES, turns = TURNS;
byte newest = 0;           /* the contenders come for the first time in the order of their numbers */

/* Contenders. */
#define NOBODY 9
byte permit[4] = NOBODY;   /* which it has, as it knows */
byte token[4];

/* From a contender to the guard, and back. */
#define NOWHERE 0
#define SENT 1
#define ANNOUNCED 2
#define WORKS 3
#define OVER 4
#define REFUSED 5
byte at[4];

/* The guard and the service. */
byte mark[PERMITS], begun[PERMITS];
byte busy[PERMITS];        /* executions at work */
byte working = 0, holders = 0;
bool crowd = false, stale = false, passed = false, two = false, refused = false, unlike = false, seen = false;

/* Vacuity: -DSEE=n asserts that n never happens, and must find that it does. */
#define FULL 1             /* N at work at once */
#define WORKS_LOST 2       /* another one works under the permit's next token after its holder's session was lost at work */
#define STALE 3            /* a holder of a lost session is refused */
#define ADOPTED 4          /* the answer to a create was lost, and the node is found to be its own */
#define OVERTAKEN 5        /* a permit is taken by one whose place is older than that of the last holder */
#define WITHDREW 6         /* another number */
inline see(what) {
#ifdef SEE
  if :: what == SEE -> seen = true; assert(!seen) :: else fi
#else
  skip
#endif
}

#define BEFORE(i, j) (place[j] != 0 && place[j] < place[i])
#define RANK(i) (BEFORE(i, 1) + BEFORE(i, 2) + BEFORE(i, 3))
/* The first in line goes by another number. */
#define UNLIKE_FIRST(i, j) (BEFORE(i, j) && RANK(j) == 0 && number[j] != number[i])
#ifdef NO_DIFFER
#define UNLIKE(i) false
#else
#define UNLIKE(i) (UNLIKE_FIRST(i, 1) || UNLIKE_FIRST(i, 2) || UNLIKE_FIRST(i, 3))
#endif
#ifdef NO_RANK
#define IS_NEXT(i) true
#else
#define IS_NEXT(i) (RANK(i) < number[i])
#endif
#define HAS(i, p) (owner[p] == i)
/* Permit p is of one who goes by another number. */
#define OTHERS(i, p) (owner[p] != 0 && number[owner[p]] != number[i])

#ifdef ONE_MARK
#define MARK(p) 0
#else
#define MARK(p) p
#endif

inline count(i) {
  holders = HAS(i, 0) + HAS(i, 1) + HAS(i, 2);
  two = holders > 1;
  assert(!two)
}

/* The transaction that takes permit p: it needs the own place, and that the permit is free. */
inline take(i, p) {
  passed = RANK(i) >= number[i];
  assert(!passed);
  zxid++;
  owner[p] = i;
  if :: made[p] > place[i] -> see(OVERTAKEN) :: else fi;
  made[p] = zxid;
  count(i);
  unlike = OTHERS(i, 0) || OTHERS(i, 1) || OTHERS(i, 2);
  assert(!unlike)
}

inline granted(i, p) {
  permit[i] = p;
#ifdef PLACE_TOKEN
  token[i] = place[i]
#else
  token[i] = made[p]
#endif
}

inline leave(i) {
  place[i] = 0;
  p = 0;
  do :: p < PERMITS -> if :: owner[p] == i -> owner[p] = 0 :: else fi; p++ :: else -> break od;
  p = 0
}

proctype Contender(byte i) {
  byte p;
  byte tried = 0;          /* bits of permits that were taken when it tried */
end: do
  :: atomic { turns > 0 && newest >= i - 1 ->
       turns--;
       if :: newest < i -> newest = i :: else fi;
       zxid++; place[i] = zxid };
lists:
     /* A list, and the transaction later: the list may be old by then. */
     if
     :: atomic { place[i] != 0 && UNLIKE(i) -> see(WITHDREW); leave(i) }; goto over
     :: atomic { place[i] != 0 && IS_NEXT(i) && !UNLIKE(i) -> tried = 0 }
     :: atomic { place[i] == 0 -> skip }; goto over    /* its session is lost, and it is told */
     fi;
tries:
     if
     :: atomic { place[i] == 0 -> skip }; goto over
     :: atomic { place[i] != 0 ->
          if :: !(tried & 1) -> p = 0 :: !(tried & 2) -> p = 1 :: number[i] > 2 && !(tried & 4) -> p = 2
             :: else -> p = NOBODY
          fi;
          if
          :: p == NOBODY -> skip
          :: p != NOBODY && owner[p] != 0 -> tried = tried | (1 << p); p = NOBODY
          :: p != NOBODY && owner[p] == 0 -> take(i, p); granted(i, p)
          :: p != NOBODY && owner[p] == 0 && lies > 0 -> lies--; take(i, p)
          fi };
        if
        :: p == NOBODY && (tried == 3 || tried == 7) && number[i] <= 2 + (tried == 7) ->
           /* All were taken. Some permit becomes free, or its place goes. */
           p = 0;
           atomic { place[i] == 0 || owner[0] == 0 || owner[1] == 0 || (number[i] > 2 && owner[2] == 0) -> skip };
           goto lists
        :: p == NOBODY && !((tried == 3 || tried == 7) && number[i] <= 2 + (tried == 7)) -> p = 0; goto tries
        :: p != NOBODY && permit[i] == p -> goto holds
        :: p != NOBODY && permit[i] != p ->
           /* The answer was lost. */
#ifdef UNKNOWN_FORGOTTEN
           tried = tried | (1 << p); p = 0; goto tries
#else
           atomic { if :: owner[p] == i -> see(ADOPTED); granted(i, p) :: else -> p = 0 fi };
           if :: permit[i] != NOBODY -> goto holds :: else -> goto over fi
#endif
        fi
     fi;
holds:
     atomic { p = 0; tried = 0; at[i] = SENT };
     atomic { at[i] == OVER || at[i] == REFUSED -> at[i] = NOWHERE; permit[i] = NOBODY; token[i] = 0; leave(i) };
over:
     atomic { p = 0; tried = 0; lost[i] = false }
  od
}

#if defined(NO_GUARD) || defined(NO_SECOND_CHECK)
#define IS_OLD(i) false
#else
#define IS_OLD(i) (token[i] < mark[MARK(permit[i])])
#endif
#if defined(NO_GUARD) || defined(NO_SETTLE)
#define READY(i) (at[i] == ANNOUNCED)
#else
#define READY(i) (at[i] == ANNOUNCED && (IS_OLD(i) || busy[permit[i]] == 0))
#endif

/* One request at the guard. It is sent again by nobody. */
proctype Guard() {
  byte i, p;
end: do
  :: atomic { (at[1] == SENT || at[2] == SENT || at[3] == SENT) ->
       if :: at[1] == SENT -> i = 1 :: at[2] == SENT -> i = 2 :: at[3] == SENT -> i = 3 fi;
       p = permit[i];
#ifdef NO_GUARD
       at[i] = ANNOUNCED;
#else
       if
       :: token[i] < mark[MARK(p)] ->
          if :: lost[i] -> see(STALE) :: else fi;
          refused = owner[p] == i;
          assert(!refused);
          at[i] = REFUSED
       :: else -> mark[MARK(p)] = token[i]; at[i] = ANNOUNCED
       fi;
#endif
       i = 0; p = 0 }
  /* It has waited for the execution before. */
  :: atomic { (READY(1) || READY(2) || READY(3)) ->
       if :: READY(1) -> i = 1 :: READY(2) -> i = 2 :: READY(3) -> i = 3 fi;
       p = permit[i];
       if
       :: IS_OLD(i) ->
          refused = owner[p] == i;
          assert(!refused);
          at[i] = REFUSED
       :: else ->
#ifndef NO_GUARD
          stale = token[i] < begun[p];
          assert(!stale);
#endif
          begun[p] = token[i];
          busy[p]++; working++;
          at[i] = WORKS;
          crowd = working > MOST;
          assert(!crowd);
          if :: working == N -> see(FULL) :: else fi
       fi;
       i = 0; p = 0 }
  od
}

/* Executions end at any time. */
proctype Service() {
  byte i;
end: do
  :: atomic { (at[1] == WORKS || at[2] == WORKS || at[3] == WORKS) ->
       if :: at[1] == WORKS -> i = 1 :: at[2] == WORKS -> i = 2 :: at[3] == WORKS -> i = 3 fi;
       if :: lost[i] && made[permit[i]] > token[i] -> see(WORKS_LOST) :: else fi;
       busy[permit[i]]--; working--;
       at[i] = OVER; i = 0 }
  od
}

/* Sessions are lost while their holder waits, has a request under way, or works. */
proctype Sessions() {
  byte i, p;
end: do
  :: atomic { losses > 0 && (place[1] != 0 || place[2] != 0 || place[3] != 0) ->
       if :: place[1] != 0 -> i = 1 :: place[2] != 0 -> i = 2 :: place[3] != 0 -> i = 3 fi;
       losses--; lost[i] = true; leave(i); i = 0 }
  od
}

init {
  atomic {
    number[1] = N; number[2] = N; number[3] = N;
#ifdef OTHER_NUMBER
    number[3] = N + 1;
#endif
    run Contender(1); run Contender(2); run Contender(3);
    run Guard(); run Service(); run Sessions()
  }
}
