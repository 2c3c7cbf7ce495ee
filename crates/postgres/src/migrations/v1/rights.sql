-- Some of these functions run as their owner, and none is for whoever just reads. The owner grants them to the gateways'
-- role (README). What a later migration adds is open to everybody until this is said again.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tidegate FROM PUBLIC;
