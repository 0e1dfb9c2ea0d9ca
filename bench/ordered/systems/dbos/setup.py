"""Creates the tables and the queue."""

from app import DBOS, launch

launch()
DBOS.destroy()
