"""What stands for Helion and a GPU in the processes of a pool under test."""

import time


def compile_service(*, workload):
    def handle(task):
        config = task["config"]
        if config["x"] < 0:
            return {"error": f"{workload} refuses {config['x']}"}
        if config["x"] == 99:
            raise RuntimeError("the code generator fell over")
        time.sleep(config.get("slow", 0))
        return {"code": f"kernel of {config['x'] // 2}"}  # two configs, one code

    return handle


def timing_service(*, workload):
    timed = []

    def handle(task):
        timed.append(task["code"])
        half = int(task["code"].rpartition(" ")[2])
        if half == 7:
            return {"status": "wrong_result", "error": f"{workload} is off"}
        if task["again"] == "graph":  # which 4 is fastest in, and 3 cannot be captured
            if half == 3:
                return {"status": "launch_error", "error": "operation not permitted"}
            return {"status": "ok", "samples_us": [1.0 if half == 4 else 7.0 + half]}
        return {"status": "ok", "samples_us": [10.0 + half + 0.001 * timed.count(task["code"])]}

    return handle
