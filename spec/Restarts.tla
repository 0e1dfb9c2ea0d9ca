---------------------------------- MODULE Restarts ------------------------------
(* A server that restarts has what was on its disk: all writes, or not the last     *)
(* ones. Its clock goes on, so fences still grow. What a source is told to forget   *)
(* must be on disk (G1). A settlement that was lost lets its message run again, and  *)
(* what a run may do whose lease has come back is not limited by its fence: Once and *)
(* NoZombie do not hold after such a loss.                                          *)
EXTENDS Letters

CONSTANT RestartTimes
VARIABLES disk, restarts
ofRestarts == <<disk, restarts>>

Stored == [state |-> state, fence |-> fence, holder |-> holder, died |-> died, lane |-> lane, ready |-> ready,
           leases |-> leases, delayed |-> delayed, dead |-> dead, seen |-> seen]

\* All writes so far are on disk.
Sync == disk # Stored /\ disk' = Stored /\ UNCHANGED <<vars, restarts>>
Restart ==
  /\ restarts > 0 /\ restarts' = restarts - 1 /\ UNCHANGED disk
  /\ state' = disk.state /\ fence' = disk.fence /\ holder' = disk.holder /\ died' = disk.died /\ lane' = disk.lane
  /\ ready' = disk.ready /\ leases' = disk.leases /\ delayed' = disk.delayed /\ dead' = disk.dead /\ seen' = disk.seen
  /\ overdue' = disk.leases \* nobody could renew
  /\ UNCHANGED <<clock, outside, history>>
ConfirmStored ==
  /\ \E m \in Messages \ confirmed :
       /\ m \in seen /\ Guard("confirm after sync", m \in disk.seen) /\ confirmed' = confirmed \cup {m}
  /\ UNCHANGED <<redis, condition, runs, calls, budget, history, ofRestarts>>

RestartInit == LettersInit /\ restarts = RestartTimes /\ disk = Stored
RestartNext == UNCHANGED <<heads, letters>> /\
  (Sync \/ Restart \/ ConfirmStored
   \/ /\ UNCHANGED ofRestarts
      /\ \/ AppendNext \/ AppendAgain \/ FetchKiller \/ Arrive \/ Elapse \/ Sweep
         \/ \E w \in Workers : Fetch(w) \/ Complete(w) \/ KeepAlive(w) \/ FindUnknown(w) \/ Start(w) \/ Crash(w) \/ Freeze(w))
RestartSpec == RestartInit /\ [][RestartNext]_<<coreVars, letters, ofRestarts>>

\* The source appends again what it was not told to forget.
RestartNothingLost == \A m \in confirmed : state[m] = "none" => m \in completed
=================================================================================
