---------------------------------- MODULE Pauses --------------------------------
(* A lane that is paused hands out no message; one with a rate hands out the next   *)
(* one only when its interval is over. Both keep back the first message of a lane.  *)
EXTENDS Letters

CONSTANTS PauseTimes, Paced   \* how often a person pauses; the lanes with a rate
VARIABLES paused, pauses,
  used,       \* lanes whose rate is used up, as Redis has noted
  recent      \* lanes in which a message has started within the last interval
ofPauses == <<paused, pauses, used, recent>>

Back(m, p, u) == IF KeysOf[m] \cap p # {} THEN "waiting" ELSE IF KeysOf[m] \cap u # {} THEN "delayed" ELSE "ready"
KeepsBack(p, u) == heads' = IF "stay back" \in Without THEN heads ELSE [m \in Messages |-> Back(m, p, u)]

MoveAll == Move({m \in Messages : Moves(m)}) /\ UNCHANGED letters

Pause == \E k \in Keys \ paused :
  /\ pauses > 0 /\ pauses' = pauses - 1 /\ paused' = paused \cup {k} /\ UNCHANGED <<used, recent>>
  /\ KeepsBack(paused', used) /\ IF "pause recalls" \in Without THEN Move({}) /\ UNCHANGED letters ELSE MoveAll
Resume == \E k \in paused :
  /\ paused' = paused \ {k} /\ UNCHANGED <<pauses, used, recent>>
  /\ KeepsBack(paused', used) /\ IF "resume advances" \in Without THEN Move({}) /\ UNCHANGED letters ELSE MoveAll
\* The interval of a rate is over. A message that was delayed for it is due by its own time (Due).
IntervalEnds == \E k \in recent :
  /\ used' = used \ {k} /\ recent' = recent \ {k} /\ UNCHANGED <<paused, pauses>> /\ KeepsBack(paused, used') /\ Move({}) /\ UNCHANGED letters

\* A start uses up the rates of its lanes.
Starts(m) == recent' = recent \cup (KeysOf[m] \cap Paced) /\ used' = IF "note start" \in Without THEN used ELSE used \cup (KeysOf[m] \cap Paced)
Started == \E w \in Workers : \E m \in ready :
  /\ Starts(m) /\ KeepsBack(paused, used') /\ Fetch(w) /\ state'[m] = "leased" /\ UNCHANGED <<paused, pauses, letters>>
\* A message is delayed until the intervals of its lanes are over.
SweepInTime == (\E m \in Messages : Expire(m) \/ (KeysOf[m] \cap used = {} /\ Due(m))) /\ UNCHANGED outside

PausesInit == LettersInit /\ paused = {} /\ pauses = PauseTimes /\ used = {} /\ recent = {}
PausesNext ==
  \/ Pause \/ Resume \/ IntervalEnds \/ Started
  \/ /\ UNCHANGED <<heads, letters, ofPauses>>
     /\ \/ AppendNext \/ Confirm \/ FetchKiller \/ Arrive \/ Elapse \/ SweepInTime
        \/ \E w \in Workers : Complete(w) \/ KeepAlive(w) \/ FindUnknown(w) \/ Start(w) \/ GiveBack(w) \/ Crash(w) \/ Freeze(w)
PausesSpec == PausesInit /\ [][PausesNext]_<<coreVars, letters, ofPauses>>

\* What starts has no paused lane, and none whose rate is used up.
NoneStartsPaused == [][\A m \in Messages : state'[m] = "leased" /\ state[m] # "leased"
                        => KeysOf[m] \cap (paused \cup recent) = {}]_<<coreVars, ofPauses>>
=================================================================================
