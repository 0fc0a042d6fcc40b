"""A double of the Hatchet engine at the wire: what the unmodified hatchet-sdk says over gRPC and REST is answered as the engine
answers it, as far as alarms need it. Time is what the test says, and so is what goes wrong.

It is here and not in `owlclaw_ray/testing`, because applications test against `InProcessRuntime`, which needs no engine.
"""
