// Sizes, names, ranges and environment variables: what is taken, what is refused, and that a
// refusal says why.
#include <gtest/gtest.h>

#include <cstdlib>

#include "penstock/options.hpp"

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
    {"table_bytes", [](options& o) { o.table_bytes = 65535; }},
    {"max_files", [](options& o) { o.max_files = 15; }},
    {"max_files", [](options& o) { o.max_files = (1 << 19) + 1; }},
    {"service_threads", [](options& o) { o.service_threads = 65; }},
    {"staging_bytes", [](options& o) { o.staging_bytes = 1; }},
    {"staging_bytes", [](options& o) { o.staging_bytes = std::uint64_t{17} << 30; }},
    {"worker_threads", [](options& o) { o.worker_threads = 1025; }},
    {"frame_wait_ms", [](options& o) { o.frame_wait_ms = 0; }},
    {"request_wait_ms", [](options& o) { o.request_wait_ms = 600001; }},
    {"host_wait_ms", [](options& o) { o.host_wait_ms = 99; }},
};

}  // namespace

TEST(options, ranges_are_checked_and_named) {
    EXPECT_TRUE(options{}.check().ok());
    for (const wrong_option& one : wrong_options) {
        options o;
        one.change(o);
        const status s = o.check();
        EXPECT_EQ(s.code, -EINVAL) << one.name;
        EXPECT_EQ(s.message.rfind(one.name, 0), 0u) << s.message;
    }
}

TEST(options, borders_are_inside) {
    options o;
    o.page_bytes = 512;
    o.cache_bytes = 4096;
    o.table_bytes = 65536;
    o.max_files = 16;
    o.service_threads = 64;
    o.staging_bytes = 1 << 20;
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
    const variable all[] = {
        {"PENSTOCK_BACKEND", "cpu"},       {"PENSTOCK_DEVICE", "3"},
        {"PENSTOCK_CACHE", "2GiB"},        {"PENSTOCK_PAGE", "4KiB"},
        {"PENSTOCK_TABLE", "1MiB"},        {"PENSTOCK_MAX_FILES", "99"},
        {"PENSTOCK_SERVICE_THREADS", "5"}, {"PENSTOCK_STAGING", "8MiB"},
        {"PENSTOCK_WORKERS", "6"},         {"PENSTOCK_IO", "pread"},
        {"PENSTOCK_FRAME_WAIT_MS", "11"},  {"PENSTOCK_REQUEST_WAIT_MS", "12"},
        {"PENSTOCK_HOST_WAIT_MS", "130"},  {"PENSTOCK_ROOTS", "/a:/b c::/d"},
        {"PENSTOCK_DIRECT_IO", "off"},     {"PENSTOCK_REGISTERED_BUFFERS", "off"}};
    options o;
    const status s = options::from_environment(o);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(o.where, backend::cpu);
    EXPECT_EQ(o.device, 3);
    EXPECT_EQ(o.cache_bytes, std::uint64_t{2} << 30);
    EXPECT_EQ(o.page_bytes, 4096u);
    EXPECT_EQ(o.table_bytes, 1u << 20);
    EXPECT_EQ(o.max_files, 99u);
    EXPECT_EQ(o.service_threads, 5u);
    EXPECT_EQ(o.staging_bytes, 8u << 20);
    EXPECT_EQ(o.worker_threads, 6u);
    EXPECT_EQ(o.io, io_method::pread);
    EXPECT_EQ(o.direct_io, direct_mode::off);
    EXPECT_FALSE(o.registered_buffers);
    EXPECT_EQ(o.frame_wait_ms, 11u);
    EXPECT_EQ(o.request_wait_ms, 12u);
    EXPECT_EQ(o.host_wait_ms, 130u);
    EXPECT_EQ(o.roots, (std::vector<std::string>{"/a", "/b c", "/d"}));
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
        {"PENSTOCK_SERVICE_THREADS", "2 "}, {"PENSTOCK_REGISTERED_BUFFERS", "yes"}};
    for (const auto& [name, value] : wrong) {
        const variable one(name, value);
        options o;
        const status s = options::from_environment(o);
        EXPECT_EQ(s.code, -EINVAL) << name;
        EXPECT_EQ(s.message.rfind(name, 0), 0u) << s.message;
        EXPECT_NE(s.message.find("'" + std::string(value) + "'"), std::string::npos) << s.message;
    }
}

}  // namespace penstock::test
