// Sizes, names, ranges and environment variables: what is taken, what is refused, and that a
// refusal says why.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "settings/tables.hpp"

namespace penstock::test {

TEST(parse_size, accepted) {
    const std::pair<const char*, std::uint64_t> cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"64KiB", 65536},
        {"3 GiB", std::uint64_t{3} << 30},
        {"1.5GiB", 3ull << 29},
        {"10MB", 10000000},
        {"2M", 2097152},
        {"1K", 1024},
        {"1KB", 1000},
        {"7 B", 7},
        {"0.5KiB", 512},
        {"1TiB", std::uint64_t{1} << 40},
        {"9007199254740993", 9007199254740993},  // one more than a double can tell apart
        {"2.01GB", 2010000000},                  // of doubles the product is one less
        {"1.001KB", 1001},
        {"1.00000001490116119384765625TiB", (std::uint64_t{1} << 40) + 16384},
        {"2.50 KiB", 2560},
        {"1.0", 1},
        {"7.", 7},
        {".5KiB", 512},
    };
    for (const auto& [text, bytes] : cases) {
        std::uint64_t got = 12345;
        const status s = parse_size("cache", text, got);
        EXPECT_TRUE(s.ok()) << text << ": " << s.message;
        EXPECT_EQ(got, bytes) << text;
    }
}

TEST(parse_size, refused_with_name_and_text) {
    for (const char* text : {"",
                             " ",
                             "-1",
                             "3 GiBs",
                             "1e3",
                             "1e3KiB",
                             "KiB",
                             "4096x",
                             "1 2",
                             "1,5GiB",
                             "0x10",
                             "nan",
                             "inf",
                             "+5",
                             " 5",
                             "99999999999999999999",
                             "16777216TiB",
                             "9300000TiB",
                             "18446744073709551616",
                             "5\n",
                             "1.2.3",
                             "1 kib"}) {
        std::uint64_t got = 12345;
        const status s = parse_size("--cache", text, got);
        EXPECT_EQ(s.code, -EINVAL) << "'" << text << "' gave " << got;
        EXPECT_EQ(got, 12345u) << "'" << text << "' changed the value";
        EXPECT_NE(s.message.find("--cache"), std::string::npos) << s.message;
        EXPECT_NE(s.message.find("'" + std::string(text) + "'"), std::string::npos) << s.message;
    }
}

TEST(parse_size, what_is_no_whole_number_of_bytes_is_refused_with_those_beside_it) {
    const std::tuple<const char*, const char*, const char*> cases[] = {
        {"1.5", "1", "2"},
        {"0.1", "0", "1"},
        {"1.0001KiB", "1024", "1025"},
        {"1.1GiB", "1181116006", "1181116007"},
        {"0.0000001KB", "0", "1"},
        {"9007199254740993.5", "9007199254740993", "9007199254740994"},
        {"0.00000000000000000000000000000000000001TiB", "0", "1"},
    };
    for (const auto& [text, below, above] : cases) {
        std::uint64_t got = 12345;
        const status s = parse_size("--cache", text, got);
        EXPECT_EQ(s.code, -EINVAL) << text;
        EXPECT_EQ(got, 12345u) << text;
        EXPECT_EQ(s.message, "--cache: '" + std::string(text) +
                                 "' is no whole number of bytes; give " + below + " or " + above);
    }
}

TEST(format_size, largest_unit_that_divides) {
    EXPECT_EQ(format_size(0), "0 B");
    EXPECT_EQ(format_size(1), "1 B");
    EXPECT_EQ(format_size(1023), "1023 B");
    EXPECT_EQ(format_size(65536), "64 KiB");
    EXPECT_EQ(format_size(1536), "1.5 KiB");
    EXPECT_EQ(format_size(std::uint64_t{3} << 30), "3 GiB");
    EXPECT_EQ(format_size((std::uint64_t{5} << 40) + 1), "5.0 TiB");
    for (const std::uint64_t bytes : {0ull, 4096ull, 65536ull, 1ull << 20, 3ull << 33}) {
        std::uint64_t back = 1;
        EXPECT_TRUE(parse_size("x", format_size(bytes), back).ok());
        EXPECT_EQ(back, bytes);
    }
}

TEST(parse_names, back_ends_and_io_methods) {
    backend where = backend::cpu;
    EXPECT_TRUE(parse_backend("x", "auto", where).ok());
    EXPECT_EQ(where, backend::automatic);
    EXPECT_TRUE(parse_backend("x", "gpu", where).ok());
    EXPECT_EQ(where, backend::gpu);
    for (const char* text : {"", "GPU", "cuda", "cpu "})
        EXPECT_EQ(parse_backend("x", text, where).code, -EINVAL) << text;
    EXPECT_EQ(where, backend::gpu);
    io_method io = io_method::automatic;
    EXPECT_TRUE(parse_io_method("x", "pread", io).ok());
    EXPECT_EQ(io, io_method::pread);
    for (const char* text : {"", "io_uring", "aio"})
        EXPECT_EQ(parse_io_method("x", text, io).code, -EINVAL) << text;
    EXPECT_STREQ(name_of(io_method::uring), "uring");
    direct_mode direct = direct_mode::automatic;
    EXPECT_TRUE(parse_direct_mode("x", "on", direct).ok());
    EXPECT_EQ(direct, direct_mode::on);
    for (const char* text : {"", "yes", "always"})
        EXPECT_EQ(parse_direct_mode("x", text, direct).code, -EINVAL) << text;
    EXPECT_STREQ(name_of(direct_mode::automatic), "auto");
    trust_mode trust = trust_mode::automatic;
    EXPECT_TRUE(parse_trust_mode("x", "on", trust).ok());
    EXPECT_EQ(trust, trust_mode::on);
    EXPECT_EQ(parse_trust_mode("x", "yes", trust).code, -EINVAL);
    EXPECT_STREQ(name_of(backend::automatic), "auto");
}

namespace {

struct wrong_option {
    const char* name;  // that the message must name
    void (*change)(options&);
};

constexpr wrong_option wrong_options[] = {
    {"page_bytes", [](options& o) { o.page_bytes = 1000; }},
    {"page_bytes", [](options& o) { o.page_bytes = 0; }},
    {"page_bytes", [](options& o) { o.page_bytes = 256; }},
    {"page_bytes", [](options& o) { o.page_bytes = 4 << 20; }},
    {"page_bytes", [](options& o) { o.page_bytes = std::uint64_t{1} << 63; }},
    {"cache_bytes", [](options& o) { o.cache_bytes = 7 * o.page_bytes; }},
    {"device", [](options& o) { o.device = -1; }},
    {"devices",
     [](options& o) {
         o.devices = {0, -1};
     }},
    {"devices", [](options& o) { o.devices = {0, 1, 2, 3, 4, 5, 6, 7, 8}; }},
    {"devices: GPU 1",
     [](options& o) {
         o.where = backend::gpu;
         o.devices = {0, 1, 1};
     }},
    {"share: '../other' is no name", [](options& o) { o.share = "../other"; }},
    {"share: '.hidden' is no name", [](options& o) { o.share = ".hidden"; }},
    {"share: 'aaaaaaa", [](options& o) { o.share = std::string(65, 'a'); }},
    {"share: 'agent' is the name of the socket of penstock-agent",
     [](options& o) { o.share = "agent"; }},
    {"share: 'agent.lock' is the name of the socket of penstock-agent",
     [](options& o) { o.share = "agent.lock"; }},
    {"share: 'a' links the 2 devices with each other too, and links is off",
     [](options& o) {
         o.share = "a";
         o.devices = {0, 1};
         o.links = false;
     }},
    {"share: 'a' shares the frames, and frames in cache_memory",
     [](options& o) {
         o.where = backend::cpu;
         o.share = "a";
         o.cache_bytes = 1 << 20;
         o.cache_memory = reinterpret_cast<void*>(0x10000);
     }},
    {"table_bytes", [](options& o) { o.table_bytes = 65535; }},
    {"max_files", [](options& o) { o.max_files = 15; }},
    {"max_files", [](options& o) { o.max_files = (1 << 19) + 1; }},
    {"service_threads", [](options& o) { o.service_threads = 65; }},
    {"service_threads", [](options& o) { o.service_threads = 0; }},
    {"most_service_threads", [](options& o) { o.most_service_threads = 65; }},
    {"most_service_threads",
     [](options& o) {
         o.service_threads = 3;
         o.most_service_threads = 2;
     }},
    {"cache_bytes", [](options& o) { o.cache_bytes = 0; }},
    {"window_bytes", [](options& o) { o.window_bytes = 1; }},
    {"staging_bytes", [](options& o) { o.staging_bytes = 1; }},
    {"staging_bytes", [](options& o) { o.staging_bytes = std::uint64_t{17} << 30; }},
    {"staging_bytes", [](options& o) { o.staging_bytes = 0; }},
    {"worker_threads", [](options& o) { o.worker_threads = 1025; }},
    {"worker_threads", [](options& o) { o.worker_threads = 0; }},
    {"frame_wait_ms", [](options& o) { o.frame_wait_ms = 0; }},
    {"request_wait_ms", [](options& o) { o.request_wait_ms = 600001; }},
    {"host_wait_ms", [](options& o) { o.host_wait_ms = 99; }},
};

}  // namespace

TEST(options, ranges_are_checked_and_named) {
    EXPECT_TRUE(options{}.check().ok());
    for (const wrong_option& option : wrong_options) {
        options o;
        option.change(o);
        const status s = o.check();
        EXPECT_EQ(s.code, -EINVAL) << option.name;
        EXPECT_EQ(s.message.rfind(option.name, 0), 0u) << s.message;
    }
}

TEST(options, numbers_of_devices_are_only_names_on_cpu) {
    options o;
    o.where = backend::cpu;
    o.devices = {7, 7, 0, 1, 2, 3, 4, 5};
    EXPECT_TRUE(o.check().ok()) << o.check().message;
}

TEST(options, memory_of_the_caller_is_for_one_device) {
    options o;
    o.where = backend::cpu;
    o.cache_bytes = 1 << 20;
    o.cache_memory = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
    o.devices = {3};
    o.device = -1;  // has no meaning then
    EXPECT_TRUE(o.check().ok()) << o.check().message;
    o.devices = {3, 4};
    EXPECT_EQ(o.check().code, -EINVAL);
    EXPECT_EQ(o.check().message.rfind("cache_memory: 0x100000", 0), 0u) << o.check().message;
}

TEST(options, borders_are_inside) {
    options o;
    o.page_bytes = 512;
    o.cache_bytes = 4096;
    o.table_bytes = 65536;
    o.max_files = 16;
    o.service_threads = o.most_service_threads = 64;
    o.staging_bytes = 1 << 20;
    o.window_bytes = 0;
    o.write_behind_bytes = 0;
    o.frame_wait_ms = 1;
    o.request_wait_ms = 600000;
    o.host_wait_ms = 100;
    EXPECT_TRUE(o.check().ok()) << o.check().message;
    o.page_bytes = 2 << 20;
    o.cache_bytes = 16 << 20;
    EXPECT_TRUE(o.check().ok()) << o.check().message;
}

namespace {

// Sets a variable for the life of the object.
class variable {
public:
    variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~variable() { ::unsetenv(name_); }
    variable(const variable&) = delete;
    variable& operator=(const variable&) = delete;

private:
    const char* name_;
};

}  // namespace

TEST(environment, every_variable_is_read) {
    const variable all[] = {{"PENSTOCK_BACKEND", "cpu"},
                            {"PENSTOCK_DEVICE", "3"},
                            {"PENSTOCK_CACHE", "2GiB"},
                            {"PENSTOCK_PAGE", "4KiB"},
                            {"PENSTOCK_TABLE", "1MiB"},
                            {"PENSTOCK_MAX_FILES", "99"},
                            {"PENSTOCK_SERVICE_THREADS", "5"},
                            {"PENSTOCK_STAGING", "8MiB"},
                            {"PENSTOCK_WORKERS", "6"},
                            {"PENSTOCK_IO", "pread"},
                            {"PENSTOCK_FRAME_WAIT_MS", "11"},
                            {"PENSTOCK_REQUEST_WAIT_MS", "12"},
                            {"PENSTOCK_HOST_WAIT_MS", "130"},
                            {"PENSTOCK_ROOTS", "/a:/b c::/d"},
                            {"PENSTOCK_DIRECT_IO", "off"},
                            {"PENSTOCK_DIRECT_STORAGE", "on"},
                            {"PENSTOCK_CUFILE_LIBRARY", "/opt/libcufile.so.0"},
                            {"PENSTOCK_REGISTERED_BUFFERS", "off"},
                            {"PENSTOCK_DEVICES", "2,0"},
                            {"PENSTOCK_LINKS", "off"},
                            {"PENSTOCK_STATISTICS", "off"},
                            {"PENSTOCK_TRUST_TIMES", "off"},
                            {"PENSTOCK_MOST_SERVICE_THREADS", "9"}};
    options o;
    const status s = options::from_environment(o);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(o.where, backend::cpu);
    EXPECT_EQ(o.device, 3);
    EXPECT_EQ(o.devices, (std::vector<int>{2, 0}));
    EXPECT_FALSE(o.links);
    EXPECT_FALSE(o.publish_statistics);
    EXPECT_EQ(o.cache_bytes, std::uint64_t{2} << 30);
    EXPECT_EQ(o.page_bytes, 4096u);
    EXPECT_EQ(o.table_bytes, 1u << 20);
    EXPECT_EQ(o.max_files, 99u);
    EXPECT_EQ(o.service_threads, 5u);
    EXPECT_EQ(o.most_service_threads, 9u);
    EXPECT_EQ(o.staging_bytes, 8u << 20);
    EXPECT_EQ(o.worker_threads, 6u);
    EXPECT_EQ(o.io, io_method::pread);
    EXPECT_EQ(o.direct_io, direct_mode::off);
    EXPECT_EQ(o.direct_storage, direct_mode::on);
    EXPECT_EQ(o.cufile_library, "/opt/libcufile.so.0");
    EXPECT_FALSE(o.registered_buffers);
    EXPECT_EQ(o.trust_times, trust_mode::off);
    EXPECT_EQ(o.frame_wait_ms, 11u);
    EXPECT_EQ(o.request_wait_ms, 12u);
    EXPECT_EQ(o.host_wait_ms, 130u);
    EXPECT_EQ(o.roots, (std::vector<std::string>{"/a", "/b c", "/d"}));
}

TEST(environment, auto_is_automatic_and_zero_is_zero) {
    const variable all[] = {{"PENSTOCK_CACHE", "auto"},
                            {"PENSTOCK_WORKERS", "auto"},
                            {"PENSTOCK_WINDOW", "0"},
                            {"PENSTOCK_WRITE_BEHIND", "0"}};
    options o;
    o.cache_bytes = 1 << 20;
    o.worker_threads = 3;
    const status s = options::from_environment(o);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_FALSE(o.cache_bytes.has_value());
    EXPECT_FALSE(o.worker_threads.has_value());
    EXPECT_EQ(o.window_bytes, 0u);
    EXPECT_EQ(o.write_behind_bytes, 0u);
}

TEST(environment, an_empty_variable_is_as_good_as_none) {
    const variable page("PENSTOCK_PAGE", "");
    options o;
    EXPECT_TRUE(options::from_environment(o).ok());
    EXPECT_EQ(o.page_bytes, options{}.page_bytes);
}

TEST(environment, a_wrong_value_names_its_variable) {
    const std::pair<const char*, const char*> wrong[] = {
        {"PENSTOCK_BACKEND", "tpu"},        {"PENSTOCK_DEVICE", "x"},
        {"PENSTOCK_CACHE", "lots"},         {"PENSTOCK_MAX_FILES", "-1"},
        {"PENSTOCK_WORKERS", "1.5"},        {"PENSTOCK_IO", "mmap"},
        {"PENSTOCK_PAGE", "4 KiBs"},        {"PENSTOCK_FRAME_WAIT_MS", "99999999999"},
        {"PENSTOCK_STAGING", "0"},          {"PENSTOCK_MAX_FILES", "auto"},
        {"PENSTOCK_SERVICE_THREADS", "2 "}, {"PENSTOCK_REGISTERED_BUFFERS", "yes"},
        {"PENSTOCK_DEVICES", "0,"},         {"PENSTOCK_DEVICES", "0 1"}};
    for (const auto& [name, value] : wrong) {
        const variable setting(name, value);
        options o;
        const status s = options::from_environment(o);
        EXPECT_EQ(s.code, -EINVAL) << name;
        EXPECT_EQ(s.message.rfind(name, 0), 0u) << s.message;
        EXPECT_NE(s.message.find("'" + std::string(value) + "'"), std::string::npos) << s.message;
    }
}

// A member that is added or taken away breaks the binding below, and the count then asks for a row.
// Two have none: text cannot give a function or an address.
TEST(option_table, has_a_row_for_every_member_that_text_can_give) {
    const options o;
    [[maybe_unused]] const auto& [where, device, devices, links, share, publish, cache, memory,
                                  page, table, files, threads, most_threads, staging, window, admit,
                                  tier, writable, behind, workers, io, direct, registered,
                                  direct_storage, cufile, trust, store, store_wait, store_space,
                                  store_local, frame_wait, request_wait, host_wait, roots, log] = o;
    constexpr std::size_t members = 35;
    std::set<std::string> names, variables;
    for (const settings::option_entry& entry : settings::option_entries()) {
        names.insert(entry.name);
        variables.insert(entry.variable);
    }
    EXPECT_EQ(names.size(), members - 2);
    EXPECT_EQ(variables.size(), members - 2);
}

TEST(option_table, automatic_values_are_told_apart) {
    std::set<std::string> automatic;
    for (const settings::option_entry& entry : settings::option_entries())
        if (settings::is_automatic(entry, options{})) automatic.insert(entry.name);
    EXPECT_EQ(automatic,
              (std::set<std::string>{"where", "cache_bytes", "service_threads",
                                     "most_service_threads", "staging_bytes", "window_bytes",
                                     "write_behind_bytes", "worker_threads", "io", "roots"}));
}

TEST(statistic_table, has_a_row_for_every_number) {
    statistics s;
    std::set<std::uint64_t statistics::*,
             bool (*)(std::uint64_t statistics::*, std::uint64_t statistics::*)>
        members([](std::uint64_t statistics::*a, std::uint64_t statistics::*b) {
            static statistics of;
            return &(of.*a) < &(of.*b);
        });
    std::set<engine::counter> counters;
    for (const settings::statistic_entry& entry : settings::statistic_entries()) {
        members.insert(entry.member);
        counters.insert(entry.counter);
    }
    const std::size_t numbers =
        (sizeof s - sizeof s.batch_size - sizeof s.latency_ns) / sizeof(std::uint64_t);
    EXPECT_EQ(members.size(), numbers);
    EXPECT_EQ(settings::statistic_entries().size(), numbers);
    EXPECT_EQ(counters.size(), engine::count_kinds + 1u) << "each counter of the device, and none";
    EXPECT_NE(s.to_json().find("{\"hits\":0,\"misses\":0,"), std::string::npos) << s.to_json();
}

namespace {

// docs/guide/settings.md with the rows that the table gives.
std::string with_rows(const std::string& document) {
    const std::pair<const char*, settings::part> tables[] = {
        {"## Where it runs\n", settings::part::place},
        {"## The cache\n", settings::part::cache},
        {"## The way to the file\n", settings::part::way},
        {"## How long to wait\n", settings::part::waits}};
    std::string out = document;
    for (const auto& [heading, part] : tables) {
        const std::size_t head = out.find("| --- |", out.find(heading));
        if (head == std::string::npos) return std::string("no table below ") + heading;
        const std::size_t first = out.find('\n', head) + 1;
        std::size_t end = first;
        while (out[end] == '|') end = out.find('\n', end) + 1;
        out.replace(first, end - first, settings::document_rows(part));
    }
    return out;
}

}  // namespace

// With PENSTOCK_REWRITE in the environment it writes the document instead.
TEST(option_table, the_document_has_its_rows) {
    const char* const path = PENSTOCK_SOURCE_DIR "/docs/guide/settings.md";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string document = text.str(), wanted = with_rows(document);
    if (std::getenv("PENSTOCK_REWRITE") != nullptr) {
        std::ofstream(path) << wanted;
        return;
    }
    EXPECT_EQ(document, wanted) << "PENSTOCK_REWRITE=1 and this test write it anew";
    const std::size_t row = document.find("| `page_bytes`");
    ASSERT_NE(row, std::string::npos);
    std::string changed = document;
    changed[row + 4] = 'q';
    EXPECT_NE(changed, with_rows(changed)) << "the comparison must be able to fail";
}

}  // namespace penstock::test
