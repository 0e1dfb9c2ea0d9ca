import time
from tests.lanes.conftest import *  # noqa
from tests.support.history import ids
from chatlanes import lanes
from tests.support.lab_app import LANE_QUEUES
def test_protocol1(make_lab):
    lab=make_lab(task_protocol=1)
    lab.worker("prefork",2)
    try:
        lab.send("p1",["a"],countdown=2); lab.send("p2",["a"])
        print([t.id for t in lab.store.next_timers()], lab.leases(), lab.pending())
        time.sleep(1); print(lab.leases(), ids(lab.history,"end"))
        time.sleep(3); print(lab.leases(), lab.pending(), ids(lab.history,"end"))
    except Exception as e: print(repr(e))
def test_kill9(make_lab):
    lab=make_lab(options={"lease_seconds":1})
    for n in range(40): lab.publish(f"m{n}",[f"l{n%4}"],gate=None) if n%2 else lab.send(f"m{n}",[f"l{n%4}"],countdown=0.05*n)
    for _ in range(3):
        w=[lab.worker("prefork",2) for _ in range(2)]
        time.sleep(0.4)
        for x in w: x.kill_all()
    lab.worker("prefork",2); lab.drained()
    from collections import Counter
    c=Counter(ids(lab.history,"end")); print(len(c), {k:v for k,v in c.items() if v>1})
