/* A guard asks its database to let a dispatch in, and the answer may be lost: the statement was never heard, was done,
   or is still on its way. It asks again by the name of the dispatch, on a new connection of which alone the statements
   count from then on; it may give up at any time; and it says the end until that has been heard.

   Without -D: it sends only what is registered, and when nothing more can happen nothing is left registered.
   Each of the following takes a rule away: NO_GENERATION NO_NAME NO_TAKE_BACK SENDS_UNTOLD */

#define SLOTS 8
#define NOTHING 0
#define CLAIM 1
#define END 2
#define LOSSES 2             /* answers or questions that are lost */

byte generation = 0;         /* in the database; the guard has the connection of it */
byte way[SLOTS];             /* statements on their way, in no order: connections are not in line with each other */
byte conn[SLOTS];            /* of which connection */
byte about[SLOTS];           /* which name */
byte asks = 0;
bool registered = false, ended = false;  /* what the guard was told */
bool row[4];                 /* in the database, by name */
bool raised = false;         /* the mark, by this name */
byte by = 0;
byte name = 0;
byte losses = 0, cuts = 0;
bool unregistered = false, left = false, seen = false, gone = false;

#ifdef NO_GENERATION
#define COUNTS(s) true
#else
#define COUNTS(s) (conn[s] == generation)
#endif
/* Only the connection that it has can tell it, and that answer may be lost, too. */
#define TOLD(s) (conn[s] == generation)

inline pick(s) {
  s = 0;
  do
  :: s < SLOTS - 1 -> s++
  :: break
  od;
}

inline done(s) {
  if
  :: COUNTS(s) && way[s] == END ->
       row[about[s]] = false;
       if :: TOLD(s) -> ended = true :: TOLD(s) && losses < LOSSES -> losses++ :: !TOLD(s) -> skip fi
  :: COUNTS(s) && way[s] == CLAIM ->
       if
       :: row[about[s]] -> skip                            /* asked again: it is there already */
       :: !row[about[s]] && raised && by != about[s] -> skip  /* a duplicate */
       :: !row[about[s]] && !(raised && by != about[s]) -> raised = true; by = about[s]; row[about[s]] = true
       fi;
       if
       :: TOLD(s) && row[about[s]] -> registered = true
       :: TOLD(s) && losses < LOSSES -> losses++
       :: !TOLD(s) || !row[about[s]] -> skip
       fi
  :: !COUNTS(s) -> skip
  fi;
  way[s] = NOTHING
}

proctype Database() {
  byte s;
end: do
  :: atomic { way[0] + way[1] + way[2] + way[3] + way[4] + way[5] + way[6] + way[7] > 0 ->
       pick(s);
       if :: way[s] != NOTHING -> done(s) :: else fi;
       s = 0 }
  od
}

inline ask(what) { atomic { way[asks] = what; conn[asks] = generation; about[asks] = name; asks++ } }

/* What was asked on the old connection is on its way, or was never heard. */
inline reconnect() {
  cuts++;
  if
  :: way[asks - 1] != NOTHING && losses < LOSSES -> way[asks - 1] = NOTHING; losses++
  :: skip
  fi;
  generation++;
#ifdef NO_NAME
  name++
#endif
}

proctype Guard() {
  ask(CLAIM);
end_in:
  if
  :: atomic { registered -> skip }
  :: atomic { !registered && cuts < 3 -> reconnect() };
     if
     :: ask(CLAIM); goto end_in
     :: skip; goto give_up
     fi
#ifdef SENDS_UNTOLD
  :: atomic { !registered -> skip }
#endif
  fi;
  atomic { unregistered = !row[name]; assert(!unregistered) };
give_up:
#ifdef NO_TAKE_BACK
  if :: atomic { !registered -> goto over } :: atomic { registered -> skip } fi;
#endif
say_end:
  ask(END);
end_over:
  if
  :: atomic { ended -> skip }
  :: atomic { !ended && cuts < 3 -> reconnect() }; goto say_end
  fi;
over:
  gone = true
}

init {
  byte s;
  atomic { run Database(); run Guard() }
  timeout;
#ifdef SEE
  seen = losses == SEE; assert(!seen);
#endif
  /* Who waits in vain at the end has no more cuts left: that schedule is not told to its end. */
  left = gone && (row[0] || row[1] || row[2] || row[3]);
  assert(!left)
}
