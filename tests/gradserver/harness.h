#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parax/base/philox.h"
#include "parax/gradserver/server.h"

namespace parax::testing {

// A number in [-1, 1) that depends on its coordinates only.
inline float Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ b * 0xbf58476d1ce4e5b9u ^ c * 0x94d049bb133111ebu ^ d;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31f;
}

inline IndexMap Identity(size_t n) {
  std::vector<uint32_t> position(n);
  for (size_t i = 0; i < n; ++i) position[i] = static_cast<uint32_t>(i);
  return CompressIndexMap(position, n);
}

inline IndexMap Reversed(size_t n) {
  std::vector<uint32_t> position(n);
  for (size_t i = 0; i < n; ++i) position[i] = static_cast<uint32_t>(n - 1 - i);
  return CompressIndexMap(position, n);
}

// Leaves round robin over the domains.
inline ServerOptions Options(const std::vector<size_t>& sizes, int leaves, int domains = 1) {
  ServerOptions options;
  for (const size_t n : sizes) {
    options.parameters.push_back(
        {fmt::format("p{}", options.parameters.size()), n, true, {Identity(n), Reversed(n)}});
  }
  for (int l = 0; l < leaves; ++l) options.leaf_domain.push_back(l % domains);
  options.domain_node.assign(domains, -1);
  options.bucket_bytes = 40'000;
  options.slice_bytes = 20'000;
  options.wait_timeout = std::chrono::seconds(60);
  return options;
}

// What the leaves do; every function depends on its arguments only.
struct Job {
  uint64_t first = 1, iterations = 5;
  double rate = 0.1;
  uint64_t jitter = 0;  // 0: none; else the seed of random pauses
  std::function<float(uint64_t t, int leaf, int parameter, size_t i)> gradient =
      [](uint64_t t, int leaf, int p, size_t i) { return Noise(t, leaf, p, i); };
  std::function<int64_t(uint64_t t, int leaf)> samples = [](uint64_t, int) { return 4; };
  std::function<double(uint64_t t, int leaf)> weight = nullptr;  // null: samples
};

struct Pauses {
  RandomStream random;
  bool on;
  Pauses(uint64_t seed, int leaf) : random(seed, RandomUse::kTest, leaf), on(seed != 0) {}
  void Maybe() {
    if (!on) return;
    const uint32_t dice = random.Below(16);
    if (dice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.Below(300)));
    if (dice == 1) std::this_thread::yield();
  }
};

inline uint64_t Digest(const float* values, size_t n) {
  uint64_t digest = 14695981039346656037u;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, 4);
    digest = (digest ^ bits) * 1099511628211u;
  }
  return digest;
}

inline const float* FloatForm(const GradientServer& server, int domain, int parameter, int form) {
  return static_cast<const float*>(server.form(domain, parameter, form));
}

// One leaf's thread: forward (awaiting and reading parameters), backward in an order of its own.
inline Outcome RunLeaf(GradientServer& server, const ServerOptions& options, const Job& job,
                       int leaf) {
  const int parameters = static_cast<int>(options.parameters.size());
  const int domain = options.leaf_domain[leaf];
  Pauses pauses(job.jitter, leaf);
  const auto read = [&](int bucket) {
    uint64_t digest = 0;
    for (int p = 0; p < parameters; ++p) {
      if (server.bucket_of(p) != bucket) continue;
      const size_t n = options.parameters[p].elements;
      for (int f = 0; f < 2; ++f)
        digest ^= Digest(FloatForm(server, domain, p, f), n) * (2 * p + f + 1);
    }
    return digest;
  };
  std::vector<uint64_t> seen(server.buckets());
  for (uint64_t t = job.first; t < job.first + job.iterations; ++t) {
    const int64_t samples = job.samples(t, leaf);
    Outcome outcome = server.BeginIteration(leaf, t, job.rate, samples);
    if (outcome != Outcome::kOk) return outcome;
    if (job.weight) server.SetWeight(leaf, job.weight(t, leaf));
    for (int b = server.buckets() - 1; b >= 0 && samples > 0; --b) {
      outcome = server.AwaitBucket(leaf, b);
      if (outcome != Outcome::kOk) return outcome;
      seen[b] = read(b);
      pauses.Maybe();
    }
    const int turn = static_cast<int>(t + leaf) % server.buckets();
    for (int i = 0; i < server.buckets(); ++i) {
      const int b = (i + turn) % server.buckets();
      for (int p = 0; p < parameters && samples > 0; ++p) {
        if (server.bucket_of(p) != b) continue;
        float* const g = server.gradient(leaf, p);
        for (size_t k = 0; k < options.parameters[p].elements; ++k)
          g[k] = job.gradient(t, leaf, p, k);
      }
      pauses.Maybe();
      outcome = server.Help(leaf);
      if (outcome != Outcome::kOk) return outcome;
      // Parameters must not have moved while this leaf used them.
      if (samples > 0) {
        EXPECT_EQ(read(b), seen[b]) << "bucket " << b << " iteration " << t;
      }
      server.Publish(leaf, b);
    }
    server.PublishMoments(leaf, 0);
    outcome = server.EndIteration(leaf);
    if (outcome != Outcome::kOk) return outcome;
  }
  return server.Drain(leaf);
}

inline std::vector<Outcome> RunLeaves(int leaves, const std::function<Outcome(int)>& body) {
  std::vector<Outcome> outcomes(leaves);
  std::vector<std::thread> threads;
  for (int l = 0; l < leaves; ++l) threads.emplace_back([&, l] { outcomes[l] = body(l); });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline void ExpectAllOk(const std::vector<Outcome>& outcomes, const StopFlag& stop) {
  for (const Outcome outcome : outcomes) EXPECT_EQ(outcome, Outcome::kOk) << stop.Reason();
}

inline float InitialWeight(int p, size_t i) { return Noise(77, 0, p, i); }

struct Trained {
  StopFlag stop;
  std::unique_ptr<GradientServer> server;
  std::vector<Outcome> outcomes;
  std::vector<float> weights;  // all masters, one after another
  std::vector<float> ema;
};

// Makes a server with InitialWeight weights and runs the job on it, a thread a leaf.
inline std::unique_ptr<Trained> Train(const ServerOptions& options, const Job& job) {
  auto trained = std::make_unique<Trained>();
  trained->server = std::make_unique<GradientServer>(options, trained->stop);
  GradientServer& server = *trained->server;
  const int parameters = static_cast<int>(options.parameters.size());
  for (int p = 0; p < parameters; ++p) {
    const std::span<float> w = server.master(p);
    for (size_t i = 0; i < w.size(); ++i) w[i] = InitialWeight(p, i);
  }
  server.RefreshForms();
  server.StartAt(job.first - 1);
  trained->outcomes = RunLeaves(static_cast<int>(options.leaf_domain.size()),
                                [&](int l) { return RunLeaf(server, options, job, l); });
  for (int p = 0; p < parameters; ++p) {
    for (const float w : server.master(p)) trained->weights.push_back(w);
    for (const float w : server.ema(p)) trained->ema.push_back(w);
  }
  return trained;
}

// The mean gradient of one element in the order that the design lays down, by another algorithm
// than the server's: whole levels of the tree, absent leaves and groups as nullopt.
inline float ReferenceMean(const Job& job, uint64_t t, int leaves, int group, int p, size_t i) {
  using Value = std::optional<float>;
  const auto add = [](Value a, Value b) -> Value { return a && b ? Value(*a + *b) : a ? a : b; };
  std::vector<Value> level((leaves + group - 1) / group);
  double weight = 0;
  for (int l = 0; l < leaves; ++l) {
    if (job.samples(t, l) == 0) continue;
    level[l / group] = add(level[l / group], job.gradient(t, l, p, i));
    weight += job.weight ? job.weight(t, l) : static_cast<double>(job.samples(t, l));
  }
  while (level.size() > 1) {
    std::vector<Value> above((level.size() + 1) / 2);
    for (size_t k = 0; k < level.size(); ++k) above[k / 2] = add(above[k / 2], level[k]);
    level = above;
  }
  return level[0].value_or(0) * static_cast<float>(1 / weight);
}

}  // namespace parax::testing
