---------------------------------- MODULE Timers --------------------------------
(* Timers: messages that join the end of their lanes when they are due. Until then  *)
(* they have no record. A timer fires in the step of a sweep, a turn or an append:  *)
(* it is removed and its message joins at once, whoever dies.                       *)
EXTENDS Letters

CONSTANT TimerMessages  \* those that only timers append; each is named by its message
VARIABLES
  timers,     \* those that are set
  due,        \* those whose time has come
  asked, cancelled,
  fired,      \* timer -> how often its message has joined
  inHand      \* worker -> timers that it has taken out of Redis; only without the guard "at once"
ofTimers == <<timers, due, asked, cancelled, fired, inHand>>

\* A message that joins its lanes without being remembered: of timers, schedules and successors.
AddUnnumbered(m) == IF state[m] = "none" THEN Enter(m, Joined(m)) /\ UNCHANGED <<seen, history>>
                    ELSE UNCHANGED <<redis, history>>

Fires(t) == timers' = IF "timer removed" \in Without THEN timers ELSE timers \ {t}

SetTimer == \E t \in TimerMessages \ asked :
  /\ timers' = timers \cup {t} /\ asked' = asked \cup {t}
  /\ UNCHANGED <<redis, outside, history, due, cancelled, fired, inHand>>
Tick == \E t \in timers \ due :
  /\ due' = due \cup {t}
  /\ UNCHANGED <<redis, outside, history, timers, asked, cancelled, fired, inHand>>
CancelTimer == \E t \in timers :
  /\ timers' = IF "cancel" \in Without THEN timers ELSE timers \ {t}
  /\ cancelled' = cancelled \cup {t}
  /\ UNCHANGED <<redis, outside, history, due, asked, fired, inHand>>
Fire == \E t \in timers :
  /\ Guard("timer is due", t \in due)
  /\ Fires(t) /\ AddUnnumbered(t)
  /\ fired' = [fired EXCEPT ![t] = @ + 1]
  /\ UNCHANGED <<outside, due, asked, cancelled, inHand>>

\* Without the guard "at once": a worker removes the timer, and then appends its message, unless it dies in between.
TakeTimer(w) == "timer at once" \in Without /\ condition[w] = "up" /\ \E t \in timers \cap due :
  /\ Fires(t) /\ inHand' = [inHand EXCEPT ![w] = @ \cup {t}]
  /\ UNCHANGED <<redis, outside, history, due, asked, cancelled, fired>>
PutTimer(w) == condition[w] = "up" /\ \E t \in inHand[w] :
  /\ AddUnnumbered(t) /\ fired' = [fired EXCEPT ![t] = @ + 1]
  /\ inHand' = [inHand EXCEPT ![w] = @ \ {t}]
  /\ UNCHANGED <<outside, timers, due, asked, cancelled>>
Dies(w) == Crash(w) /\ inHand' = [inHand EXCEPT ![w] = {}] /\ UNCHANGED <<timers, due, asked, cancelled, fired>>

OfTimers == UNCHANGED <<heads, letters>> /\
  (SetTimer \/ Tick \/ CancelTimer \/ Fire \/ \E w \in Workers : TakeTimer(w) \/ PutTimer(w) \/ Dies(w))
TimersInit ==
  /\ LettersInit /\ timers = {} /\ due = {} /\ asked = {} /\ cancelled = {}
  /\ fired = [m \in Messages |-> 0] /\ inHand = [w \in Workers |-> {}]
\* The source does not append the messages of timers.
TimersNext == OfTimers \/ (LettersNext /\ UNCHANGED ofTimers /\ seen' \cap TimerMessages = {}
                           /\ \A w \in Workers : condition'[w] = "dead" => inHand[w] = {})
TimersSpec == TimersInit /\ [][TimersNext]_<<coreVars, letters, ofTimers>>

TimerOnce == \A t \in TimerMessages : fired[t] <= 1
TimerNotEarly == \A t \in TimerMessages : fired[t] > 0 => t \in due
TimerCancelled == \A t \in cancelled : fired[t] = 0
\* A timer that was set is there until it fires or is cancelled, whoever dies.
TimerKept == \A t \in asked : t \in timers \cup cancelled \/ fired[t] > 0 \/ \E w \in Workers : t \in inHand[w]
=================================================================================
