// The kernel: one per compilation, of the kind and for the element type, the operator and the name that the options give.
//
// 512 threads leave each of them enough registers on every architecture.

extern "C" __global__ void __launch_bounds__(512)
    PACELINE_KERNEL(const __grid_constant__ paceline::PACELINE_KIND::Given given) {
    paceline::PACELINE_KIND::run<paceline::PACELINE_ELEMENT, paceline::PACELINE_OPERATOR<paceline::PACELINE_ELEMENT>>(given);
}
