// Text functions by lanes, tiles, warps and blocks: each has to give what a thread of the host
// gives.
#include <string>

#include "device/support.cuh"
#include "penstock/text.hpp"

namespace penstock::test {

namespace {

constexpr int result_count = 9, room = 64;

// A row of text is taken apart, searched and printed again. The same for every group.
template <typename Group>
PENSTOCK_HD void use_text(const Group& g, const char* from, std::int64_t bytes, char* to,
                          long long* results) {
    const text::part whole{from, bytes};
    text::part rest = whole;
    const text::part name = text::next_part(g, rest, {",; ", 3});
    const text::part number = text::next_part(g, rest, {",; ", 3});
    std::int64_t value = 0;
    const std::int64_t out[result_count] = {
        name.size,
        rest.size,
        text::read_number(g, number, value),
        text::find(g, whole, {"needle", 6}),
        text::find_byte(g, whole, '\n'),
        text::length(g, from, bytes),
        text::compare(g, name, number),
        text::format(g, to, room, name, ':', value, ':', text::hex{255}, "\t"),
        text::append(g, to, room, -7, text::part{to, 3})};
    if (g.is_leader())
        for (int i = 0; i < result_count; ++i) results[i] = out[i];
}

struct row_result {
    char text[room];
    long long results[result_count];
};

template <typename Group>
__global__ void use_rows(const char* rows, std::int64_t bytes, row_result* out) {
    const std::uint32_t groups = blockDim.x / Group().size(),
                        row = blockIdx.x * groups + threadIdx.x / Group().size();
    use_text(Group(), rows + row * bytes, bytes, out[row].text, out[row].results);
}

std::vector<std::string> make_rows(int count, std::size_t bytes) {
    std::vector<std::string> rows;
    for (int i = 0; i < count; ++i) {
        std::string row = ";, name" + std::to_string(mix64(i)) + ", " +
                          std::to_string(static_cast<std::int64_t>(mix64(i + 99))) + ";";
        const std::size_t fill = mix64(i + 7) % 300;
        row += std::string(fill, 'n') + (i % 3 != 0 ? "needle" : "needl") + (i % 2 ? "\n" : "");
        row.resize(bytes, i % 5 != 0 ? '\0' : 'e');
        rows.push_back(row);
    }
    return rows;
}

template <typename Group>
void expect_as_on_the_host(int block_threads, int group_threads) {
    constexpr std::size_t bytes = 500;
    constexpr int count = 128;
    const std::vector<std::string> rows = make_rows(count, bytes);
    const shared_array<char> text(count * bytes);
    const shared_array<row_result> found(count);
    for (int i = 0; i < count; ++i) std::memcpy(text.get() + i * bytes, rows[i].data(), bytes);
    const int groups = block_threads / group_threads;
    use_rows<Group><<<count / groups, block_threads>>>(text.get(), bytes, found.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < count; ++i) {
        row_result wanted{};
        use_text(lane{}, rows[i].data(), bytes, wanted.text, wanted.results);
        ASSERT_STREQ(found[i].text, wanted.text) << "row " << i;
        for (int k = 0; k < result_count; ++k)
            ASSERT_EQ(found[i].results[k], wanted.results[k]) << "row " << i << ", result " << k;
    }
}

}  // namespace

TEST(device_text, lanes_tiles_warps_and_blocks_do_as_the_host) {
    PENSTOCK_NEEDS_GPU();
    expect_as_on_the_host<lane>(64, 1);
    expect_as_on_the_host<tile<8>>(64, 8);
    expect_as_on_the_host<warp>(64, 32);
    expect_as_on_the_host<block>(96, 96);
}

}  // namespace penstock::test
