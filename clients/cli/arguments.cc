// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include <CLI/CLI.hpp>

#include "clients/cli/grouped_case.h"
#include "clients/cli/value_syntax.h"
#include "clients/cli/version.h"

namespace tetrad::cli {
namespace {

const std::map<std::string, v1::ActivationType> kActivationTypes = {
    {"nvfp4", v1::ACTIVATION_TYPE_NVFP4},
    {"fp16", v1::ACTIVATION_TYPE_FP16},
    {"bf16", v1::ACTIVATION_TYPE_BF16}};
const std::map<std::string, v1::OutputType> kOutputTypes = {
    {"fp16", v1::OUTPUT_TYPE_FP16}, {"bf16", v1::OUTPUT_TYPE_BF16}, {"fp32", v1::OUTPUT_TYPE_FP32}};
const std::map<std::string, v1::ScaleLayout> kScaleLayouts = {
    {"linear", v1::SCALE_LAYOUT_LINEAR}, {"blocked", v1::SCALE_LAYOUT_BLOCKED}};
const std::map<std::string, v1::OutputLayout> kOutputLayouts = {
    {"row", v1::OUTPUT_LAYOUT_ROW_MAJOR}, {"column", v1::OUTPUT_LAYOUT_COLUMN_MAJOR}};
const std::map<std::string, v1::GroupForm> kGroupForms = {{"separate", v1::GROUP_FORM_SEPARATE},
                                                          {"stacked", v1::GROUP_FORM_STACKED}};
const std::map<std::string, v1::CheckpointDialect> kDialects = {
    {"auto", v1::CHECKPOINT_DIALECT_UNSPECIFIED},
    {"modelopt", v1::CHECKPOINT_DIALECT_MODELOPT},
    {"compressed-tensors", v1::CHECKPOINT_DIALECT_COMPRESSED_TENSORS}};

// The words of an option, e.g. {nvfp4,fp16,bf16}, as its check and its help.
template <typename Enum>
CLI::Validator Words(const std::map<std::string, Enum>& words) {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) names.push_back(name);
  return CLI::IsMember(std::move(names));
}

constexpr double kDefaultBenchSeconds = 10;

constexpr char kGlobalOptionsFooter[] =
    "The global options (--endpoint, --json, --timeout, --tls-..., --token-file) are taken, too: "
    "see "
    "tetradctl --help.";
constexpr char kExamplesFooter[] =
    "Examples:\n"
    "  tetradctl status --endpoint 127.0.0.1:8472\n"
    "  tetradctl run --weights up --m 128x8";

// CLI11 stops one level down; what is nested deeper belongs to --help-all, too.
class NestedHelp : public CLI::Formatter {
 public:
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override {
    const bool expanded = mode == CLI::AppFormatMode::Sub;
    return Formatter::make_subcommands(app, expanded ? CLI::AppFormatMode::All : mode);
  }
};

CLI::Validator PositiveSeconds() {
  const auto check = [](const std::string& text) -> std::string {
    double seconds = 0;
    const bool number = absl::SimpleAtod(text, &seconds) && std::isfinite(seconds);
    return number && seconds > 0 ? "" : absl::StrCat("must be positive and finite, not ", text);
  };
  return CLI::Validator(check, "POSITIVE");
}

// What the signature options of `plan`, `run` and `bench` were set to.
struct SignatureFlags {
  std::string weights;
  std::string m;
  std::string capacity;
  std::string a = "nvfp4";
  std::string out = "fp16";
  std::string scales;  // unset: not sent
  std::string layout = "row";
  std::string form;  // unset: as the rows demand
  int64_t stride = 0;
  bool row_scale = false;

  // --weights is required unless something else can name the operands.
  void AddTo(CLI::App& app, bool required = true) {
    app.add_option("--weights,-w", weights, "Weights to multiply with: NAME or NAME@VERSION")
        ->required(required);
    app.add_option("--m", m, "Rows per group: 1,2,3 or 128x8 (eight groups of 128)");
    app.add_option("--capacity", capacity,
                   "Rows are read at launch: offsets:ROWS in total, or counts:ROWS per group");
    app.add_option("--a", a, "Activations")->check(Words(kActivationTypes))->capture_default_str();
    app.add_option("--out", out, "Output type")->check(Words(kOutputTypes))->capture_default_str();
    app.add_option("--scales", scales, "Layout of nvfp4 activation scales [linear]")
        ->check(Words(kScaleLayouts));
    app.add_option("--layout", layout, "Output layout")
        ->check(Words(kOutputLayouts))
        ->capture_default_str();
    app.add_option("--stride", stride, "Output stride in elements; 0: dense")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--form", form, "Groups in memory [separate; stacked with --capacity]")
        ->check(Words(kGroupForms));
    app.add_flag("--row-scale", row_scale, "Send a factor per row of the activations");
  }

  // The signature; `live_rows` receives --m where --capacity stands for the rows.
  absl::StatusOr<v1::Signature> Build(std::vector<int32_t>* live_rows) const {
    v1::Signature signature;
    signature.set_weights(weights);
    signature.set_activation_type(kActivationTypes.at(a));
    signature.set_output_type(kOutputTypes.at(out));
    if (!scales.empty()) signature.set_activation_scale_layout(kScaleLayouts.at(scales));
    signature.set_output_layout(kOutputLayouts.at(layout));
    signature.set_output_stride(stride);
    if (!form.empty()) signature.set_group_form(kGroupForms.at(form));
    signature.set_row_scale(row_scale);
    std::vector<int32_t> rows;
    if (!m.empty()) {
      auto parsed = ParseRows(m);
      if (!parsed.ok()) return Named("--m", parsed.status());
      rows = *std::move(parsed);
    }
    if (capacity.empty()) {
      if (m.empty()) return absl::InvalidArgumentError("--m or --capacity is required");
      signature.mutable_exact()->mutable_m()->Assign(rows.begin(), rows.end());
      return signature;
    }
    auto parsed = ParseCapacity(capacity);
    if (!parsed.ok()) return Named("--capacity", parsed.status());
    *signature.mutable_capacity() = *parsed;
    if (form.empty()) signature.set_group_form(v1::GROUP_FORM_STACKED);
    if (live_rows != nullptr) {
      *live_rows = std::move(rows);
    } else if (!m.empty()) {
      return absl::InvalidArgumentError(
          "--m: with --capacity a plan is for any rows; leave it out");
    }
    return signature;
  }

  static absl::Status Named(const char* option, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(option, " ", status.message()));
  }
};

// Everything CLI11 writes into; one object, because CLI11 keeps references.
struct Parsed {
  GlobalOptions global;
  TlsOptions tls;
  std::string log_level, lease;
  double timeout_seconds = 0;
  std::string name, directory, pattern, dialect = "auto";
  bool ignore_input_scales = false;
  int64_t version = 0;
  SignatureFlags plan, run, bench;
  RunCommand run_command;
  BenchCommand bench_command;
  std::optional<double> bench_seconds;
  std::optional<int64_t> bench_requests;
  bool no_plan = false;
  std::string shapes;
  std::optional<uint64_t> data_seed;
  VerifyCommand verify;
};

struct Subcommands {
  CLI::App *status, *weights, *load, *list, *drop, *seal, *plan, *run, *verify, *bench, *admin,
      *drain, *level, *end_lease;
};

// Variables of their own: TETRAD_TLS_KEY is the daemon's.
void DefineSecurity(CLI::App& app, Parsed& p) {
  app.add_option("--tls-ca", p.tls.root_certificates_file, "Who signed the daemon's certificate")
      ->envname("TETRADCTL_TLS_CA");
  app.add_option("--tls-cert", p.tls.certificate_file, "Our certificate")
      ->envname("TETRADCTL_TLS_CERT");
  app.add_option("--tls-key", p.tls.key_file, "Its private key")->envname("TETRADCTL_TLS_KEY");
  app.add_option("--tls-server-name", p.tls.server_name,
                 "The name in the daemon's certificate, if not that of the endpoint")
      ->envname("TETRADCTL_TLS_SERVER_NAME");
  app.add_option("--token-file", p.global.token_file, "The bearer token to show is in this file")
      ->envname("TETRADCTL_TOKEN_FILE");
}

void DefineAdmin(CLI::App& app, Subcommands& s, Parsed& p) {
  s.admin = app.add_subcommand("admin", "What operators do");
  s.admin->require_subcommand(1);
  s.drain = s.admin->add_subcommand("drain", "Let the daemon finish what it has and end");
  s.level = s.admin->add_subcommand("log-level", "Change what the daemon logs");
  s.level->add_option("level", p.log_level, "The least that is logged")
      ->required()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  s.end_lease = s.admin->add_subcommand("end-lease", "End a client's lease, with all it holds");
  s.end_lease->add_option("lease", p.lease, "The lease")->required();
}

void DefineBench(CLI::App& bench, Parsed& p) {
  p.bench.AddTo(bench, /*required=*/false);
  bench.add_option("--shape", p.bench_command.shape,
                   "Instead of those: a shape by name, e.g. S1, on weights of its own");
  bench.add_option("--in-flight,-c", p.bench_command.in_flight, "Requests at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  bench.add_option("--seconds", p.bench_seconds, "Begin no request after this time [10]")
      ->check(CLI::Range(0.001, kMaxBenchSeconds));
  bench.add_option("--requests,-n", p.bench_requests, "Requests at most [1000000]")
      ->check(CLI::Range(int64_t{1}, kMaxBenchRequests));
  bench
      .add_option("--warmups", p.bench_command.warmups, "Requests before those, for each in flight")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  bench.add_option("--seed", p.bench_command.seed, "Of the operands")->capture_default_str();
  bench.add_flag("--no-plan", p.no_plan, "Send the signature with each request, not a plan");
}

Subcommands Define(CLI::App& app, Parsed& p) {
  app.formatter(std::make_shared<NestedHelp>());  // this and the footer: inherited from here on
  app.footer(kGlobalOptionsFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", "tetradctl " + BuildVersion(), "Show the version and exit");
  app.set_help_all_flag("--help-all", "Show the options of every command and exit");
  app.add_option("--endpoint,-e", p.global.endpoint, "The daemon: unix:PATH or HOST:PORT")
      ->envname("TETRAD_ENDPOINT")
      ->capture_default_str();
  app.add_flag("--json", p.global.json, "Results as JSON on standard output");
  app.add_option("--timeout", p.timeout_seconds, "Deadline of each call in seconds")
      ->check(PositiveSeconds());

  DefineSecurity(app, p);

  Subcommands s;
  s.status = app.add_subcommand("status", "What the daemon is and does");

  s.weights = app.add_subcommand("weights", "Weights the daemon holds");
  s.weights->require_subcommand(1);
  s.load = s.weights->add_subcommand("load", "Load one projection of a checkpoint");
  s.load->add_option("name", p.name, "Name to give the weights")->required();
  s.load->add_option("--directory,-d", p.directory, "Checkpoint, relative to the daemon's root")
      ->required();
  s.load
      ->add_option("--pattern,-p", p.pattern,
                   "Tensor prefix; {expert} stands for the expert numbers; without it one layer "
                   "or a fused parameter")
      ->required();
  s.load->add_option("--dialect", p.dialect, "Naming of the tensors")
      ->check(Words(kDialects))
      ->capture_default_str();
  s.load->add_flag("--ignore-input-scales", p.ignore_input_scales,
                   "Load although input scales are not usable numbers; they are then left out");
  s.list = s.weights->add_subcommand("list", "List them");
  s.drop = s.weights->add_subcommand("drop", "Forget a version, or all of a name");
  s.drop->add_option("weights", p.name, "NAME or NAME@VERSION")->required();

  s.seal = s.weights->add_subcommand("seal", "Make an uploaded version usable, for good");
  s.seal->add_option("name", p.name, "Name of the weights")->required();
  s.seal->add_option("version", p.version, "As `weights list` shows it")
      ->required()
      ->check(CLI::PositiveNumber);

  s.plan = app.add_subcommand("plan", "Show kernel, tiles and floor of a grouped GEMM");
  p.plan.AddTo(*s.plan);

  s.run = app.add_subcommand("run", "Time a grouped GEMM on random activations");
  p.run.AddTo(*s.run);
  s.run->add_option("--repeats,-n", p.run_command.repeats, "Timed runs")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  s.run->add_option("--warmups", p.run_command.warmups, "Runs before those")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  s.run->add_option("--seed", p.run_command.seed, "Of the activations")->capture_default_str();

  s.verify = app.add_subcommand("verify", "Compare results with a reference computed here");
  s.verify
      ->add_option("--shapes,-s", p.shapes,
                   "contest, contest-tests, decode, prefill, random:SEED:COUNT or weights:NAME")
      ->required();
  s.verify->add_option("--seed", p.data_seed, "Of the data [1]; random names its own");
  s.verify->add_option("--expected", p.verify.expected,
                       "weights:NAME only: safetensors file with the dequantised values");
  s.verify->add_option("--tensor-pattern", p.verify.pattern,
                       "weights:NAME only: tensor in that file, with {expert}");
  s.verify->add_flag("--verbose,-v", p.verify.verbose, "A row for every random seed");

  s.bench = app.add_subcommand("bench", "Load the daemon and report throughput and latency");
  DefineBench(*s.bench, p);
  DefineAdmin(app, s, p);
  app.footer(kExamplesFooter);
  return s;
}

// With --shape the shape says what else the options would.
absl::StatusOr<BenchCommand> BuildBench(const CLI::App& app, const Parsed& p) {
  BenchCommand bench = p.bench_command;
  bench.plan = !p.no_plan;
  // One limit that was given is the limit; the other is there all the same.
  const double seconds = p.bench_requests ? kMaxBenchSeconds : kDefaultBenchSeconds;
  bench.duration = absl::Seconds(p.bench_seconds.value_or(seconds));
  bench.requests = p.bench_requests.value_or(kMaxBenchRequests);
  if (!bench.shape.empty()) {
    for (const char* option : {"--weights", "--m", "--capacity", "--a", "--out", "--scales",
                               "--layout", "--stride", "--form", "--row-scale"}) {
      if (app.count(option) == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("--shape and ", option, ": one or the other"));
    }
    if (!FindShape(bench.shape)) {
      return absl::InvalidArgumentError(absl::StrCat("--shape '", bench.shape,
                                                     "' must be one of S1 to S4, T1 to T10, "
                                                     "D1 to D3, P1"));
    }
    return bench;
  }
  if (p.bench.weights.empty())
    return absl::InvalidArgumentError("--weights or --shape is required");
  auto signature = p.bench.Build(&bench.live_rows);
  if (!signature.ok()) return signature.status();
  bench.signature = *std::move(signature);
  return bench;
}

absl::StatusOr<VerifyCommand> BuildVerify(const Parsed& p) {
  auto shapes = ParseShapes(p.shapes);
  if (!shapes.ok()) return SignatureFlags::Named("--shapes", shapes.status());
  VerifyCommand verify = p.verify;
  verify.shapes = shapes->set;
  verify.weights = shapes->weights;
  verify.count = shapes->count;
  const bool of_weights = verify.shapes == ShapeSet::kWeights;
  if (of_weights != !verify.expected.empty() || of_weights != !verify.pattern.empty()) {
    return absl::InvalidArgumentError(
        "--expected and --tensor-pattern belong to --shapes weights:NAME, which needs both");
  }
  if (verify.shapes == ShapeSet::kRandom) {
    if (p.data_seed) {
      return absl::InvalidArgumentError("--seed: random:SEED:COUNT already names the seed");
    }
    verify.seed = shapes->seed;
  } else if (p.data_seed) {
    verify.seed = *p.data_seed;
  }
  return verify;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

absl::StatusOr<GlobalOptions> BuildGlobal(const Parsed& p) {
  GlobalOptions global = p.global;
  if (p.timeout_seconds > 0) global.timeout = absl::Seconds(p.timeout_seconds);
  if (p.tls.certificate_file.empty() != p.tls.key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together");
  }
  const bool tls = !p.tls.root_certificates_file.empty() || !p.tls.certificate_file.empty() ||
                   !p.tls.server_name.empty();
  if (tls) global.tls = p.tls;
  global.token = Variable("TETRADCTL_TOKEN");
  if (!global.token.empty() && !global.token_file.empty()) {
    return absl::InvalidArgumentError(
        "TETRADCTL_TOKEN and --token-file (TETRADCTL_TOKEN_FILE) exclude each other");
  }
  global.traceparent = Variable("TRACEPARENT");
  return global;
}

absl::StatusOr<Command> BuildCommand(const Subcommands& s, const Parsed& p) {
  if (s.status->parsed()) return StatusCommand{};
  if (s.list->parsed()) return WeightsListCommand{};
  if (s.drain->parsed()) return DrainCommand{};
  if (s.level->parsed()) return LogLevelCommand{p.log_level};
  if (s.end_lease->parsed()) return EndLeaseCommand{p.lease};
  if (s.seal->parsed()) return WeightsSealCommand{p.name, p.version};
  if (s.bench->parsed()) {
    auto bench = BuildBench(*s.bench, p);
    if (!bench.ok()) return bench.status();
    return *std::move(bench);
  }
  if (s.drop->parsed()) return WeightsDropCommand{p.name};
  if (s.load->parsed()) {
    WeightsLoadCommand load;
    load.request.set_name(p.name);
    load.request.set_directory(p.directory);
    load.request.set_pattern(p.pattern);
    load.request.set_dialect(kDialects.at(p.dialect));
    load.request.set_ignore_input_scales(p.ignore_input_scales);
    return load;
  }
  if (s.plan->parsed()) {
    auto signature = p.plan.Build(nullptr);
    if (!signature.ok()) return signature.status();
    return PlanCommand{*std::move(signature)};
  }
  if (s.run->parsed()) {
    RunCommand run = p.run_command;
    auto signature = p.run.Build(&run.live_rows);
    if (!signature.ok()) return signature.status();
    run.signature = *std::move(signature);
    return run;
  }
  auto verify = BuildVerify(p);
  if (!verify.ok()) return verify.status();
  return *std::move(verify);
}

// "status, weights, plan, run, verify, bench or admin".
std::string SubcommandNames(const CLI::App& app) {
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string names;
  for (size_t i = 0; i < subcommands.size(); ++i) {
    const char* between = i == 0 ? "" : i + 1 < subcommands.size() ? ", " : " or ";
    absl::StrAppend(&names, between, subcommands[i]->get_name());
  }
  return names;
}

// Something required is missing. Where it is a subcommand, CLI11 does not say
// which there are, nor what stood in its place.
absl::Status Missing(const CLI::App& app, const CLI::RequiredError& error) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  const std::string names = SubcommandNames(*last);
  if (names.empty()) return absl::InvalidArgumentError(error.what());
  const std::vector<std::string> surplus = app.remaining(/*recurse=*/true);
  if (surplus.empty() || surplus.front().starts_with('-')) {
    return absl::InvalidArgumentError(absl::StrCat("a subcommand is required: ", names));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown subcommand '", surplus.front(), "'; expected ", names));
}

}  // namespace

absl::StatusOr<Invocation> ParseArguments(std::vector<std::string> arguments) {
  Parsed parsed;
  CLI::App app("Command line of the Tetrad daemon", "tetradctl");
  const Subcommands subcommands = Define(app, parsed);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForAllHelp&) {
    return Invocation{parsed.global, HelpText{app.help("", CLI::AppFormatMode::All)}};
  } catch (const CLI::CallForVersion&) {
    return Invocation{parsed.global, HelpText{app.version() + "\n"}};
  } catch (const CLI::CallForHelp&) {
    return Invocation{parsed.global, HelpText{app.help()}};
  } catch (const CLI::RequiredError& error) {
    return Missing(app, error);
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  auto global = BuildGlobal(parsed);
  if (!global.ok()) return global.status();
  auto command = BuildCommand(subcommands, parsed);
  if (!command.ok()) return command.status();
  return Invocation{*std::move(global), *std::move(command)};
}

}  // namespace tetrad::cli
