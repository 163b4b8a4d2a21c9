// Not an ordinary header: the loops of gemm and winograd include it, after what a vector is.

// Stores `value` of channels [channel, channel + kLanes) at `to`, finished where `finish` is given.
PARAX_TARGET inline void StoreFinished(const Finish* finish, V value, int64_t channel, float* to) {
  if (finish != nullptr) {
    value = (value - Load(finish->mean + channel)) * Load(finish->scale + channel) +
            Load(finish->bias + channel);
    if (finish->residual != nullptr) value += Load(finish->residual + (to - finish->y));
    if (finish->relu) value = Floor(Set(0.0f), value);
  }
  Store(to, value);
}
