// The kernel: one per compilation, for the element type, the operator and the name that the options give.

extern "C" __global__ void PACELINE_KERNEL(const __grid_constant__ paceline::Arguments arguments) {
    paceline::fold_all<paceline::PACELINE_ELEMENT, paceline::PACELINE_OPERATOR<paceline::PACELINE_ELEMENT>>(arguments);
}
