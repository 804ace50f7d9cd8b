"""Games of serving: routing, KV placement, the prefill/decode split, and what selfish play costs (`anarchy`)."""
