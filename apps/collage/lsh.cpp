#include "lsh.hpp"

namespace penstock::collage {

lsh_family make_family(std::uint64_t seed, std::uint32_t width) {
    lsh_family out;
    out.width = width;
    out.coefficients.resize(std::size_t{features} * projections);
    for (std::uint32_t p = 0; p < projections; ++p)
        for (std::uint32_t channel = 0; channel < 3; ++channel) {
            std::int32_t knots[knots_per_channel];
            for (std::uint32_t k = 0; k < knots_per_channel; ++k) {
                // The sum of four bytes is near enough to a normal distribution: the p-stable one
                // of Euclidean distance.
                const std::uint64_t random = mix(
                    seed + ((std::uint64_t{p} * 3 + channel) * knots_per_channel + k + 1) * golden);
                const auto byte = [random](int i) {
                    return static_cast<std::int32_t>(random >> (8 * i) & 255);
                };
                knots[k] = byte(0) + byte(1) + byte(2) + byte(3) - 510;
            }
            for (std::uint32_t f = 0; f < features_per_channel; ++f) {
                const std::uint32_t k = f / features_per_knot;
                const auto behind = static_cast<std::int32_t>(f % features_per_knot);
                const std::int32_t value =
                    knots[k] * (static_cast<std::int32_t>(features_per_knot) - behind) +
                    knots[k + 1] * behind;
                out.coefficients[std::size_t{channel * features_per_channel + f} * projections +
                                 p] = static_cast<std::int16_t>(value);
            }
        }
    for (std::uint32_t p = 0; p < projections; ++p)
        out.offsets.push_back(static_cast<std::uint32_t>(mix(~seed + (p + 1) * golden) % width));
    return out;
}

}  // namespace penstock::collage
