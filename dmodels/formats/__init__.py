"""Files of other tools: benchmarks' results and engines' telemetry in, deployments out and in.

`engines` knows the command lines of vLLM, SGLang and TensorRT-LLM; `deployments` the manifests around them;
`measurements` the reports of load generators. Each has one table of its formats, which `dmodels formats` prints.
"""
