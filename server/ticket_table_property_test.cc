// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TicketTable against a model that is too simple to be wrong, in thousands of
// random orders, and from many threads at once.
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "server/ticket_table.h"

namespace tetrad {
namespace {

using Wake = TicketTable::Wake;

constexpr int64_t kTickets = 12, kClientTickets = 5, kBytes = 4000, kClientBytes = 2500;

// One ticket as the model has it. It never removes any: what is no more is known
// by its state.
struct Model {
  std::string client, key;
  uint8_t digest = 0;
  int64_t keep = 0;
  enum { kAdmitting, kUnderWay, kDone, kGone } state = kAdmitting;
  Instant expires = kNever;
  std::string name;
  TicketOutcomePtr outcome;
  int executions = 0;
};

class Play {
 public:
  explicit Play(uint32_t seed) : random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += Draw(4);
      Expire();
      switch (Draw(9)) {
        case 0:
        case 1:
        case 2:
          Begin();
          break;
        case 3:
        case 4:
          Decide();
          break;
        case 5:
          End();
          break;
        case 6:
          Wait();
          break;
        case 7:
          Draw(2) == 0 ? Cancel() : Forget();
          break;
        case 8:
          Draw(2) == 0 ? StopWaiting() : Step();
          break;
      }
      Check();
      if (::testing::Test::HasFailure()) return;
    }
    Finish();
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_()) % below; }
  Model* Pick(std::initializer_list<int> states) {
    std::vector<Model*> found;
    for (auto& [number, model] : models_) {
      if (std::ranges::find(states, static_cast<int>(model.state)) != states.end()) {
        found.push_back(&model);
      }
    }
    return found.empty() ? nullptr : found[Draw(static_cast<uint32_t>(found.size()))];
  }
  TicketNumber NumberOf(const Model& model) const {
    for (const auto& [number, each] : models_) {
      if (&each == &model) return number;
    }
    return TicketNumber::kNone;
  }
  bool Lives(const Model& model) const { return model.state != Model::kGone; }
  int64_t Count(const std::string& client = {}) const {
    return std::ranges::count_if(models_, [&](const auto& entry) {
      return Lives(entry.second) && (client.empty() || entry.second.client == client);
    });
  }
  void Expire() {
    for (auto& [number, model] : models_) {
      if (model.state == Model::kDone && model.expires <= now_) Drop(model);
    }
  }
  void Drop(Model& model) {
    model.state = Model::kGone;
    model.outcome.reset();
  }

  void Begin() {
    const std::string client(1, static_cast<char>('a' + Draw(3)));
    const std::string key = Draw(3) == 0 ? "" : absl::StrCat("k", Draw(4));
    const auto digest = static_cast<uint8_t>(Draw(4) == 0 ? 1 : 0);
    const int64_t keep = 1 + Draw(60);
    Model* known = nullptr;
    for (auto& [number, model] : models_) {
      if (Lives(model) && !key.empty() && model.client == client && model.key == key) {
        known = &model;
      }
    }
    const bool room = Count() < kTickets && Count(client) < kClientTickets;
    const auto heard = std::make_shared<std::optional<absl::StatusOr<TicketTable::Admission>>>();
    const int64_t repeats = table_.stats().repeats;
    RequestDigest wide{};
    wide.fill(digest);
    const TicketNumber number = table_.Begin(
        {client, key, wide, keep},
        [heard](const absl::StatusOr<TicketTable::Admission>& admission) {
          EXPECT_FALSE(heard->has_value());
          *heard = admission;
        },
        now_);
    if (known != nullptr && known->digest != digest) {
      EXPECT_EQ(number, TicketNumber::kNone);
      ASSERT_TRUE(heard->has_value());
      EXPECT_EQ((*heard)->status().code(), absl::StatusCode::kAlreadyExists);
    } else if (known != nullptr) {
      EXPECT_EQ(number, TicketNumber::kNone);
      EXPECT_EQ(table_.stats().repeats, repeats + 1);
      if (known->state == Model::kAdmitting) {
        EXPECT_FALSE(heard->has_value());
        hearing_[NumberOf(*known)].push_back(heard);
      } else {
        ASSERT_TRUE(heard->has_value());
        EXPECT_EQ((*heard)->value().ticket, known->name);
        EXPECT_TRUE((*heard)->value().repeated);
      }
    } else if (!room) {
      EXPECT_EQ(number, TicketNumber::kNone);
      ASSERT_TRUE(heard->has_value());
      EXPECT_EQ((*heard)->status().code(), absl::StatusCode::kResourceExhausted);
    } else {
      ASSERT_NE(number, TicketNumber::kNone);
      EXPECT_FALSE(heard->has_value());
      Model& model = models_[number];
      model.client = client;
      model.key = key;
      model.digest = digest;
      model.keep = keep;
      ++model.executions;
      hearing_[number].push_back(heard);
    }
  }

  void Decide() {
    Model* const model = Pick({Model::kAdmitting});
    if (model == nullptr) return;
    const TicketNumber number = NumberOf(*model);
    const bool admit = Draw(4) != 0;
    admit ? table_.Admit(number) : table_.Refuse(number, absl::AbortedError("no"));
    model->state = admit ? Model::kUnderWay : Model::kGone;
    for (size_t i = 0; i < hearing_[number].size(); ++i) {
      const auto& heard = *hearing_[number][i];
      ASSERT_TRUE(heard.has_value());
      ASSERT_EQ(heard->ok(), admit);
      if (!admit) continue;
      EXPECT_EQ(heard->value().repeated, i > 0);
      if (i == 0) model->name = heard->value().ticket;
      EXPECT_EQ(heard->value().ticket, model->name);
    }
    hearing_.erase(number);
  }

  TicketOutcomePtr Outcome(const std::string& client, int code) {
    auto outcome = std::make_shared<TicketOutcome>();
    outcome->code = code;
    auto bytes = bytes_->Take(client, Draw(700));
    if (bytes.ok()) outcome->bytes = *std::move(bytes);
    return outcome;
  }
  void Settle(Model& model, const TicketOutcomePtr& outcome) {
    model.state = Model::kDone;
    model.outcome = outcome;
    model.expires = now_ + model.keep;
  }

  // Of one under way, or of one that was cancelled meanwhile.
  void End() {
    Model* const model = Pick({Model::kUnderWay, Model::kUnderWay, Model::kDone});
    if (model == nullptr) return;
    const TicketOutcomePtr outcome = Outcome(model->client, 0);
    EXPECT_EQ(table_.End(NumberOf(*model), outcome, now_), model->state == Model::kUnderWay);
    if (model->state == Model::kUnderWay) Settle(*model, outcome);
  }

  std::string SomeClient(const Model& model) {
    return Draw(5) == 0 ? std::string(1, static_cast<char>('a' + Draw(3))) : model.client;
  }
  bool Known(const Model& model, const std::string& client) const {
    return client == model.client &&
           (model.state == Model::kUnderWay || model.state == Model::kDone);
  }

  struct Waiting {
    Model* model;
    Instant until;
    WaiterId id;
    std::shared_ptr<std::optional<std::pair<Wake, TicketOutcomePtr>>> woken;
  };
  void Wait() {
    Model* const model = Pick({Model::kUnderWay, Model::kDone, Model::kGone});
    if (model == nullptr || model->name.empty()) return;
    const std::string client = SomeClient(*model);
    const Instant until = Draw(3) == 0 ? kNever : now_ + Draw(40);
    const auto woken = std::make_shared<std::optional<std::pair<Wake, TicketOutcomePtr>>>();
    const auto id = table_.Wait(
        client, model->name, until,
        [woken](Wake wake, const TicketOutcomePtr& outcome) {
          EXPECT_FALSE(woken->has_value());
          *woken = {wake, outcome};
        },
        now_);
    if (!Known(*model, client)) {
      EXPECT_EQ(id.status().code(), absl::StatusCode::kNotFound);
      EXPECT_FALSE(woken->has_value());
      return;
    }
    ASSERT_TRUE(id.ok());
    if (model->state == Model::kDone) {
      ASSERT_TRUE(woken->has_value());
      EXPECT_EQ(**woken, std::pair(Wake::kDone, model->outcome));
    } else if (until <= now_) {
      ASSERT_TRUE(woken->has_value());
      EXPECT_EQ((*woken)->first, Wake::kTimeOver);
    } else {
      waiting_.push_back({model, until, *id, woken});
    }
  }
  void StopWaiting() {
    if (waiting_.empty()) return;
    const auto waiting = waiting_.begin() + Draw(static_cast<uint32_t>(waiting_.size()));
    EXPECT_EQ(table_.StopWaiting(waiting->id), !waiting->woken->has_value());
    waiting_.erase(waiting);
  }
  void Cancel() {
    Model* const model = Pick({Model::kUnderWay, Model::kDone, Model::kGone});
    if (model == nullptr || model->name.empty()) return;
    const std::string client = SomeClient(*model);
    const TicketOutcomePtr outcome = Outcome(model->client, 1);
    const auto number = table_.Cancel(client, model->name, outcome, now_);
    if (!Known(*model, client)) {
      EXPECT_EQ(number.status().code(), absl::StatusCode::kNotFound);
    } else if (model->state == Model::kDone) {
      EXPECT_EQ(*number, TicketNumber::kNone);
    } else {
      EXPECT_EQ(*number, NumberOf(*model));
      Settle(*model, outcome);
    }
  }
  void Forget() {
    Model* const model = Pick({Model::kUnderWay, Model::kDone});
    if (model == nullptr) return;
    const std::string client = SomeClient(*model);
    table_.Forget(client, model->name);
    if (client == model->client && model->state == Model::kDone) Drop(*model);
  }
  void Step() {
    const Instant due = table_.Step(now_);
    EXPECT_GT(due, now_);
    stepped_ = now_;
  }

  void Check() {
    const TicketTable::Stats stats = table_.stats();
    // The table drops what has expired when it is asked to look.
    if (stepped_ == now_) {
      EXPECT_EQ(stats.admitting + stats.under_way + stats.done, Count());
    }
    EXPECT_LE(stats.admitting + stats.under_way + stats.done, kTickets);
    EXPECT_LE(bytes_->used_bytes(), kBytes);
    for (const char* client : {"a", "b", "c"}) {
      EXPECT_LE(Count(client), kClientTickets);
      EXPECT_LE(bytes_->used_bytes(client), kClientBytes);
    }
    for (const Waiting& waiting : waiting_) {
      const bool done = waiting.model->state == Model::kDone;
      if (waiting.woken->has_value() && (*waiting.woken)->first == Wake::kTimeOver) {
        EXPECT_LE(waiting.until, stepped_);
      } else if (done) {
        ASSERT_TRUE(waiting.woken->has_value());
        EXPECT_EQ(**waiting.woken, std::pair(Wake::kDone, waiting.model->outcome));
      } else if (waiting.until <= stepped_ && waiting.model->state == Model::kUnderWay) {
        EXPECT_TRUE(waiting.woken->has_value());
      }
    }
  }

  // All end: nothing is left, and each key that was taken ran once.
  void Finish() {
    for (auto& [number, model] : models_) {
      if (model.state == Model::kAdmitting) {
        table_.Admit(number);
        model.state = Model::kUnderWay;
      }
      if (model.state == Model::kUnderWay) {
        EXPECT_TRUE(table_.End(number, Outcome(model.client, 0), now_));
      }
      EXPECT_EQ(model.executions, 1);
      Drop(model);
    }
    for (const Waiting& waiting : waiting_) EXPECT_TRUE(waiting.woken->has_value());
    waiting_.clear();
    hearing_.clear();
    EXPECT_EQ(table_.Step(now_ + 1000), kNever);
    const TicketTable::Stats stats = table_.stats();
    EXPECT_EQ(stats.admitting + stats.under_way + stats.done, 0);
    EXPECT_EQ(bytes_->used_bytes(), 0);
  }

  std::mt19937 random_;
  const std::shared_ptr<ClientBytes> bytes_ =
      ClientBytes::Create("ticket_bytes", {.all = kBytes, .client = kClientBytes});
  TicketTable table_{{.tickets = kTickets, .client_tickets = kClientTickets}, 7};
  Instant now_ = 1;
  Instant stepped_ = 0;
  std::map<TicketNumber, Model> models_;
  std::map<TicketNumber,
           std::vector<std::shared_ptr<std::optional<absl::StatusOr<TicketTable::Admission>>>>>
      hearing_;
  std::vector<Waiting> waiting_;
};

TEST(TicketTablePropertyTest, AgreesWithTheModelInAnyOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Play(seed).Run(400);
    if (::testing::Test::HasFailure()) return;
  }
}

// Submitters with few keys, waiters, cancellers and the clock, all at once: each
// ticket has one execution, and all who ask for it see the same outcome.
TEST(TicketTableConcurrencyTest, OneExecutionAndOneOutcomePerTicket) {
  TicketTable table({.tickets = 64, .client_tickets = 64}, 7);
  const auto bytes = ClientBytes::Create("ticket_bytes", {.all = 1 << 20, .client = 1 << 20});
  std::atomic<Instant> now{1};
  std::atomic<int> begun{0}, ended{0}, woken{0}, waits{0};
  std::mutex mutex;
  std::map<std::string, std::set<TicketOutcomePtr>> seen;  // by ticket
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<uint32_t>(t) + 1);
      for (int i = 0; i < 1500; ++i) {
        struct Heard {
          std::atomic<bool> done{false};
          std::string ticket;  // empty: refused
        };
        const auto heard = std::make_shared<Heard>();
        const std::string key = random() % 4 == 0 ? "" : absl::StrCat("k", random() % 6);
        const TicketNumber number = table.Begin(
            {"a", key, {}, static_cast<int64_t>(1 + random() % 50)},
            [heard](const absl::StatusOr<TicketTable::Admission>& admission) {
              if (admission.ok()) heard->ticket = admission->ticket;
              EXPECT_FALSE(heard->done.exchange(true));
            },
            now);
        if (number != TicketNumber::kNone) {
          ++begun;
          table.Admit(number);
        }
        // Who repeats a key hears from whoever decides, which does it at once.
        while (!heard->done) std::this_thread::yield();
        const std::string name = heard->ticket;
        if (!name.empty()) {
          const auto waiting = table.Wait(
              "a", name, random() % 2 == 0 ? kNever : now + 20,
              [&, name](Wake wake, const TicketOutcomePtr& outcome) {
                ++woken;
                std::lock_guard lock(mutex);
                if (wake == Wake::kDone) seen[name].insert(outcome);
              },
              now);
          if (waiting.ok() && !(random() % 8 == 0 && table.StopWaiting(*waiting))) ++waits;
          if (random() % 4 == 0) {
            (void)table.Cancel("a", name, std::make_shared<TicketOutcome>(), now);
          }
          if (random() % 4 == 0) table.Forget("a", name);
        }
        if (number != TicketNumber::kNone) {
          auto outcome = std::make_shared<TicketOutcome>();
          if (auto held = bytes->Take("a", 10); held.ok()) outcome->bytes = *std::move(held);
          table.End(number, std::move(outcome), now);
          ++ended;
        }
        if (random() % 8 == 0) table.Step(++now);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(begun, ended);
  EXPECT_EQ(woken, waits);
  EXPECT_GT(table.stats().repeats, 0);
  for (const auto& [name, outcomes] : seen) EXPECT_EQ(outcomes.size(), 1u) << name;
  EXPECT_FALSE(seen.empty());
  seen.clear();
  EXPECT_EQ(table.Step(kNever - 1), kNever);
  const TicketTable::Stats stats = table.stats();
  EXPECT_EQ(stats.admitting + stats.under_way + stats.done, 0);
  EXPECT_EQ(bytes->used_bytes(), 0);
}

}  // namespace
}  // namespace tetrad
