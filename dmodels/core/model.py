"""The transformer as a capacity planner needs it: what it stores per token, what it stores once, what it computes."""

from __future__ import annotations

from .records import Real, Record, quantity


class Model(Record):
    """A decoder model, by the numbers of its config. All leaves are float64; counts are whole.

    Layers are of five kinds: full attention (GQA/MHA), sliding-window attention, multi-head latent attention (MLA),
    linear attention or state space (constant state), and layers without any cache. Those not named below are full.

    >>> float(Model(80, 8, 128, weight_bytes=141e9).n_full_layers)
    80.0
    """

    n_layers: Real = quantity()  # decoder layers of all kinds
    n_kv_heads: Real = quantity(0.0)  # KV heads of a full-attention layer
    head_dim: Real = quantity(0.0)  # dimension of a head in a full-attention layer
    weight_bytes: Real = quantity(0.0)  # all weights, over all GPUs, as stored; 0: from the components below
    kv_dtype_bytes: Real = quantity(2.0)  # bytes per KV element; independent of the weights

    # sliding-window layers
    n_sliding_layers: Real = quantity(0.0)
    sliding_window_tokens: Real = quantity(0.0)
    sliding_kv_heads: Real = quantity(0.0)
    sliding_head_dim: Real = quantity(0.0)
    # multi-head latent attention: one latent and one rotary key per token and layer, the same on every TP rank
    n_mla_layers: Real = quantity(0.0)
    kv_lora_rank: Real = quantity(0.0)
    qk_rope_head_dim: Real = quantity(0.0)
    index_bytes_per_token: Real = quantity(0.0)  # sparse-attention indexer, per MLA layer (DeepSeek V3.2: 132)
    index_topk_tokens: Real = quantity(0.0)  # tokens a sparse MLA layer attends to; 0: all
    n_index_heads: Real = quantity(0.0)  # of the indexer, which scores every earlier token; whole on every TP rank
    index_head_dim: Real = quantity(0.0)
    latent_bytes_per_token: Real = quantity(0.0)  # per MLA layer; 0: (rank + rope) * kv_dtype_bytes
    # layers with a constant state per sequence, and layers with none
    n_linear_layers: Real = quantity(0.0)
    linear_state_bytes: Real = quantity(0.0)  # per sequence and layer, all heads, over all TP ranks
    n_linear_heads: Real = quantity(0.0)  # heads of that state, spread over TP ranks; 0: it splits evenly
    n_cacheless_layers: Real = quantity(0.0)

    # compute
    hidden_size: Real = quantity(0.0)
    n_q_heads: Real = quantity(0.0)
    qk_nope_head_dim: Real = quantity(0.0)  # MLA prefill
    v_head_dim: Real = quantity(0.0)  # MLA prefill
    ffn_size: Real = quantity(0.0)  # inner width of the widest feed-forward block that a token passes
    vocab_size: Real = quantity(0.0)

    # parameters, counted; attention includes linear mixers and norms
    attention_params: Real = quantity(0.0)
    replicated_params: Real = quantity(0.0)  # of these, whole on every TP rank (norms, MLA down-projections, indexer)
    dense_params: Real = quantity(0.0)  # dense FFNs, shared experts, routers: touched by every token
    expert_params: Real = quantity(0.0)  # one routed expert of one layer
    n_experts: Real = quantity(0.0)  # routed experts of a MoE layer
    n_active_experts: Real = quantity(0.0)  # of which a token uses
    n_expert_groups: Real = quantity(0.0)  # into which these are divided, neighbours together; 0 or 1: not at all
    n_active_groups: Real = quantity(0.0)  # of which a token may use experts
    n_moe_layers: Real = quantity(0.0)
    embedding_params: Real = quantity(0.0)  # input embedding, where it is not the head's own matrix
    head_params: Real = quantity(0.0)  # output head
    # bytes per stored parameter, scales included
    attention_dtype_bytes: Real = quantity(2.0)
    dense_dtype_bytes: Real = quantity(2.0)
    expert_dtype_bytes: Real = quantity(2.0)
    embedding_dtype_bytes: Real = quantity(2.0)  # embedding and head

    max_context_tokens: Real = quantity(0.0)  # longest context of the config; 0: unknown

    @property
    def n_full_layers(self) -> Real:
        """Layers with full attention and a K and a V per KV head."""
        named = self.n_sliding_layers + self.n_mla_layers + self.n_linear_layers + self.n_cacheless_layers
        return self.n_layers - named

    @property
    def params_count(self) -> Real:
        """All parameters (without multi-token-prediction layers)."""
        experts = self.n_moe_layers * self.n_experts * self.expert_params
        return self.attention_params + self.dense_params + experts + self.embedding_params + self.head_params

    @property
    def active_params_count(self) -> Real:
        """Parameters that one token's forward pass multiplies by (the input embedding is a look-up)."""
        experts = self.n_moe_layers * self.n_active_experts * self.expert_params
        return self.attention_params + self.dense_params + experts + self.head_params
