---------------------------------- MODULE Limits --------------------------------
(* Limits: at most `Permits` messages of a limit are ready or leased at a time       *)
(* (ready.lua, ending.lua). A message that is first in all its lanes is `ready` in   *)
(* Core; here, a worker gets it only when it also has a permit of each of its limits. *)
(* Until then, its state in Redis is `gated`. Limits are numbers: their order.       *)
EXTENDS Core

CONSTANTS
  LimitsOf,  \* message -> the set of its limits
  Permits
VARIABLES permits  \* limit -> the messages that have a permit
Limits == UNION {LimitsOf[m] : m \in Messages}

\* With the permits p.
Lacks(m, p) == {l \in LimitsOf[m] : m \notin p[l]}
IsAdmitted(m, p) == Lacks(m, p) = {}
\* The limit in which m waits: it takes its permits in the order of their limits.
WaitsIn(m, p) == {l \in Lacks(m, p) : Guard("order of limits", \A other \in Lacks(m, p) : l <= other)}
MayGive(m, l) ==
  /\ state[m] = "ready" /\ l \in WaitsIn(m, permits)
  /\ Guard("a free permit", Cardinality(permits[l]) < Permits)
  /\ \A older \in Messages : older < m => ~(state[older] = "ready" /\ l \in WaitsIn(older, permits))

\* A script does this in the step in which a permit becomes free or a message waits for one.
Give == \E m \in Messages, l \in Limits :
  /\ MayGive(m, l)
  /\ permits' = [permits EXCEPT ![l] = @ \cup {m}]
  /\ UNCHANGED coreVars

\* A message keeps its permits while it is ready or leased.
Kept == [l \in Limits |->
  {m \in permits[l] : state'[m] \in {"ready", "leased"} \cup (IF "left permits" \in Without THEN {"delayed"} ELSE None)}]
Keep == permits' = Kept
Admitted(w) == Fetch(w) /\ \A m \in Messages : state[m] = "ready" /\ state'[m] = "leased" => IsAdmitted(m, permits)

Undisturbed ==
  \/ Give
  \/ /\ \/ AppendNext \/ Confirm \/ FetchKiller \/ Arrive \/ Elapse \/ Sweep
        \/ \E w \in Workers : Admitted(w) \/ Complete(w) \/ KeepAlive(w) \/ FindUnknown(w) \/ Start(w)
     /\ Keep
LimitsInit == CoreInit /\ permits = [l \in Limits |-> None]
LimitsNext == UNCHANGED heads /\ (Undisturbed \/ (Faults /\ Keep))
LimitsSpec == LimitsInit /\ [][LimitsNext]_<<coreVars, permits>>

\* Never more than may run; a permit is that of one message, whatever its workers do.
AtMost == \A l \in Limits :
  /\ Cardinality(permits[l]) <= Permits
  /\ Cardinality({m \in Messages : state[m] = "leased" /\ l \in LimitsOf[m]}) <= Permits
\* Who waits, waits for one that is running, or for its turn: no two wait for each other.
NoCircle == (\E m \in Messages : state[m] = "ready") =>
  \E m \in Messages : state[m] = "leased" \/ (state[m] = "ready" /\ (IsAdmitted(m, permits) \/ \E l \in Limits : MayGive(m, l)))
\* What does not run takes no permit.
OnlyActive == \A l \in Limits : \A m \in permits[l] : state[m] \in {"ready", "leased"}
=================================================================================
